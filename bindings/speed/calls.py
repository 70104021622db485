"""How long calls take from Python, of this store and of others: what `calls.rs` measures from Rust. `calls.py STORE DIR`

Writes are not synced, which is the default of all but lmdb. Each batch has 1,000 rows."""

from __future__ import annotations

import sys
import time
import typing

ROWS = 200_000
BATCH = 1_000
VALUE = b"x" * 100
KEYS = [b"%016d" % (n * 7919 % ROWS) for n in range(ROWS)]

Work = typing.Callable[[], object]


def told(store: str, what: str, work: Work) -> None:
    begun = time.perf_counter()
    work()
    us = (time.perf_counter() - begun) / ROWS * 1e6
    print(f"{store}\t{what}\t{us:.4f}", flush=True)


class Siltstone:
    def __init__(self, place: str) -> None:
        import siltstone

        self.db = siltstone.open(place)

    def put(self) -> None:
        put = self.db.put
        for key in KEYS:
            put(key, VALUE)

    def get(self) -> None:
        get = self.db.get
        for key in KEYS:
            assert get(key) is not None

    def settle(self) -> None:
        self.db.flush()
        self.db.wait_idle()

    def scan(self) -> None:
        assert sum(len(value) == len(VALUE) for _, value in self.db.scan()) == ROWS

    def batch(self) -> None:
        for at in range(0, ROWS, BATCH):
            with self.db.batch() as batch:
                for key in KEYS[at : at + BATCH]:
                    batch.put(key, VALUE)

    def arrow(self) -> None:
        assert sum(batch.num_rows for batch in self.db.scan_arrow()) == ROWS

    def many(self) -> None:
        self.db.put_many(KEYS, [VALUE] * ROWS)


class Plyvel:
    """LevelDB."""

    def __init__(self, place: str) -> None:
        import plyvel

        self.db = plyvel.DB(place, create_if_missing=True)

    def put(self) -> None:
        put = self.db.put
        for key in KEYS:
            put(key, VALUE)

    def get(self) -> None:
        get = self.db.get
        for key in KEYS:
            assert get(key) is not None

    def settle(self) -> None:
        self.db.compact_range()

    def scan(self) -> None:
        with self.db.iterator() as rows:
            assert sum(len(value) == len(VALUE) for _, value in rows) == ROWS

    def batch(self) -> None:
        for at in range(0, ROWS, BATCH):
            with self.db.write_batch() as batch:
                for key in KEYS[at : at + BATCH]:
                    batch.put(key, VALUE)


class Rocksdict:
    """RocksDB."""

    def __init__(self, place: str) -> None:
        import rocksdict

        self.batches = rocksdict.WriteBatch
        self.db = rocksdict.Rdict(place, rocksdict.Options(raw_mode=True))

    def put(self) -> None:
        put = self.db.put
        for key in KEYS:
            put(key, VALUE)

    def get(self) -> None:
        get = self.db.get
        for key in KEYS:
            assert get(key) is not None

    def settle(self) -> None:
        self.db.flush()
        self.db.compact_range(None, None)

    def scan(self) -> None:
        assert sum(len(value) == len(VALUE) for _, value in self.db.items()) == ROWS

    def batch(self) -> None:
        for at in range(0, ROWS, BATCH):
            batch = self.batches(raw_mode=True)
            for key in KEYS[at : at + BATCH]:
                batch.put(key, VALUE)
            self.db.write(batch)


class Lmdb:
    """A B-tree in one file, mapped."""

    def __init__(self, place: str) -> None:
        import lmdb

        self.db = lmdb.open(place, map_size=4 << 30, sync=False)

    def put(self) -> None:
        for key in KEYS:
            with self.db.begin(write=True) as writer:
                writer.put(key, VALUE)

    def get(self) -> None:
        for key in KEYS:
            with self.db.begin() as reader:
                assert reader.get(key) is not None

    def settle(self) -> None:
        self.db.sync(True)

    def scan(self) -> None:
        with self.db.begin() as reader:
            assert sum(len(value) == len(VALUE) for _, value in reader.cursor()) == ROWS

    def batch(self) -> None:
        for at in range(0, ROWS, BATCH):
            with self.db.begin(write=True) as writer:
                for key in KEYS[at : at + BATCH]:
                    writer.put(key, VALUE)


STORES = {"python": Siltstone, "plyvel": Plyvel, "rocksdict": Rocksdict, "lmdb": Lmdb}


def main(name: str, place: str) -> None:
    store = STORES[name](place + "/db")
    told(name, "put", store.put)
    told(name, "get from memory", store.get)
    store.settle()
    told(name, "get from tables, first", store.get)
    told(name, "get from tables", store.get)
    told(name, "scan", store.scan)
    if isinstance(store, Siltstone):
        import pyarrow  # noqa: F401  (its import is not measured)

        told(name, "scan_arrow", store.arrow)
    told(name, "batch", store.batch)
    if isinstance(store, Siltstone):
        store.settle()
        told(name, "put_many", store.many)


if __name__ == "__main__":
    main(*sys.argv[1:])
