"""How long calls take: `python speed.py` with a wheel of the release (`maturin build --release`). Needs pyarrow."""

from __future__ import annotations

import tempfile
import time
import typing

import siltstone

ROWS = 300_000
VALUE = b"x" * 100


def microseconds(work: typing.Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) / ROWS * 1e6


def one_round(place: str) -> None:
    keys = [b"%016d" % (n * 7919 % ROWS) for n in range(ROWS)]
    with siltstone.open(place) as db:

        def put() -> None:
            for key in keys:
                db.put(key, VALUE)

        def get() -> None:
            for key in keys:
                db.get(key)

        told = [("put", microseconds(put)), ("get from memory", microseconds(get))]
        db.flush()
        db.settle()
        told += [("get from tables", microseconds(get)), ("again", microseconds(get))]
        told += [("scan", microseconds(lambda: sum(1 for _ in db.scan())))]
        told += [("scan_arrow", microseconds(lambda: sum(batch.num_rows for batch in db.scan_arrow())))]
        told += [("put_many", microseconds(lambda: db.put_many(keys, [VALUE] * ROWS)))]
    print(", ".join(f"{name} {us:.2f}" for name, us in told), "us a row")


if __name__ == "__main__":
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            one_round(directory + "/db")
