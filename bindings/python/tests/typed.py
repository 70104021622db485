"""What type checkers are to make of the calls. Checked by mypy, never run."""

from __future__ import annotations

import pathlib

import siltstone


def opening() -> None:
    siltstone.open("db", shared=pathlib.Path("prod"), write_memory="16MiB")
    siltstone.open("db", shared=3)  # type: ignore[arg-type]


def calls(db: siltstone.Db) -> None:
    value: bytes = db[b"k"]
    perhaps: bytes | None = db.get(b"k")
    either: bytes | int = db.get(b"k", 7)
    keys: list[bytes] = list(db.keys())
    items: list[tuple[bytes, bytes]] = list(db[b"a":b"b"])
    versions: list[tuple[bytes, int, bytes]] = list(db.scan(timestamps=True))
    many: list[bytes | None] = db.get_many([b"a", bytearray(b"b")])
    count: int = db.transact(lambda txn: len(txn[b"k"]))
    with db.snapshot() as then, db.batch() as batch, db.transaction() as txn:
        batch[b"k"] = then[b"k"] + txn[b"k"]
    db["text"]  # type: ignore[call-overload]
    db[b"k"] = "text"  # type: ignore[assignment]
    del value, perhaps, either, keys, items, versions, many, count
