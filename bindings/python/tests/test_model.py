"""Any calls in any order, beside a dictionary. Hypothesis prints how to replay what fails."""

from __future__ import annotations

import bisect
import os
import shutil
import tempfile
import typing

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import siltstone

KEYS = st.binary(min_size=1, max_size=3)
VALUES = st.one_of(st.binary(max_size=8), st.integers(0, 255).map(lambda n: bytes([n]) * 2000))
CASES = int(os.environ.get("SILTSTONE_CASES", "40"))

Model = typing.Dict[bytes, bytes]


def between(model: Model, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
    keys = sorted(model)
    return [(key, model[key]) for key in keys[bisect.bisect_left(keys, start) : bisect.bisect_left(keys, stop)]]


class Store(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.mkdtemp()
        self.model: Model = {}
        self.snapshots: list[tuple[siltstone.Snapshot, Model]] = []
        self.open()

    def open(self) -> None:
        self.db = siltstone.open(self.place + "/db", write_memory=64 << 10, memory_budget=1 << 20)

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.place)

    @rule(key=KEYS, value=VALUES, sync=st.booleans())
    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        self.db.put(key, value, sync=sync)
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        del self.db[key]
        self.model.pop(key, None)

    @rule(start=KEYS, stop=KEYS)
    def delete_range(self, start: bytes, stop: bytes) -> None:
        start, stop = min(start, stop), max(start, stop)
        del self.db[start:stop]
        for key, _ in between(self.model, start, stop):
            del self.model[key]

    @rule(items=st.dictionaries(KEYS, VALUES, max_size=50), many=st.booleans())
    def update(self, items: Model, many: bool) -> None:
        if many:
            self.db.put_many(list(items), list(items.values()))
        else:
            self.db.update(items)
        self.model.update(items)

    @rule(puts=st.dictionaries(KEYS, VALUES, max_size=5), deletes=st.lists(KEYS, max_size=3), fails=st.booleans())
    def batch(self, puts: Model, deletes: list[bytes], fails: bool) -> None:
        try:
            with self.db.batch() as batch:
                for key, value in puts.items():
                    batch[key] = value
                for key in deletes:
                    del batch[key]
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return
        self.model.update(puts)
        for key in deletes:
            self.model.pop(key, None)

    @rule(puts=st.dictionaries(KEYS, VALUES, max_size=5), start=KEYS, other=st.none() | KEYS)
    def transaction(self, puts: Model, start: bytes, other: bytes | None) -> None:
        transaction = self.db.transaction()
        inside = dict(self.model)
        for key, value in puts.items():
            assert transaction.get(key) == inside.get(key)
            transaction[key] = value
            inside[key] = value
        assert list(transaction.scan(start)) == between(inside, start, b"\xff" * 4)
        meets = other is not None and (other in puts or other >= start)
        if other is not None:
            self.db[other] = self.model[other] = b"other"
        try:
            transaction.commit()
        except siltstone.ConflictError:
            assert meets
        else:
            assert not meets
            self.model.update(puts)

    @rule(start=KEYS, stop=KEYS, reverse=st.booleans())
    def scan(self, start: bytes, stop: bytes, reverse: bool) -> None:
        expected = between(self.model, start, stop)
        assert list(self.db.scan(start, stop, reverse=reverse)) == (expected[::-1] if reverse else expected)

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.db.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(moves=st.lists(st.one_of(KEYS, st.booleans()), max_size=10))
    def cursor(self, moves: list[bytes | bool]) -> None:
        cursor, keys, at = self.db.cursor(), sorted(self.model), -1
        for move in moves:
            if isinstance(move, bytes):
                at = bisect.bisect_left(keys, move)
                assert cursor.seek(move) == (at < len(keys))
            elif 0 <= at < len(keys):
                at += 1 if move else -1
                assert (cursor.next() if move else cursor.prev()) == (0 <= at < len(keys))
            assert cursor.key == (keys[at] if 0 <= at < len(keys) else None)

    @rule()
    def snapshot(self) -> None:
        self.snapshots = self.snapshots[-2:] + [(self.db.snapshot(), dict(self.model))]

    @rule(deep=st.booleans())
    def flush(self, deep: bool) -> None:
        self.db.compact() if deep else self.db.flush()

    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.db.close()
        self.open()

    @invariant()
    def snapshots_stay(self) -> None:
        for snapshot, model in self.snapshots:
            assert list(snapshot.items()) == sorted(model.items())


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=CASES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
