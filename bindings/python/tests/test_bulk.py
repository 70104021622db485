from __future__ import annotations

import pathlib

import pytest

import siltstone

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

ROWS = 5000
KEYS = [b"%06d" % n for n in range(ROWS)]
VALUES = [b"value %d" % n for n in range(ROWS)]
ITEMS = list(zip(KEYS, VALUES))


@pytest.mark.parametrize(
    "kind", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"]
)
def test_arrow_arrays_go_in(db: siltstone.Db, kind: str) -> None:
    column = lambda rows: pa.array(rows, pa.binary()).cast(getattr(pa, kind)())  # noqa: E731
    assert db.put_many(column(KEYS), column(VALUES)) == ROWS
    assert list(db.items()) == ITEMS
    db.delete_range()
    table = pa.table({"value": column(VALUES), "key": pa.chunked_array([column(KEYS[:7]), column(KEYS[7:])])})
    assert db.put_many(table) == ROWS
    assert list(db.items()) == ITEMS
    db.delete_range()
    assert db.put_many(table["key"], VALUES) == ROWS
    assert list(db.items()) == ITEMS


def test_lists_pairs_and_numpy_go_in(db: siltstone.Db) -> None:
    assert db.put_many(KEYS, VALUES) == db.put_many(ITEMS) == ROWS
    assert list(db.items()) == ITEMS
    keys, values = np.arange(ROWS, dtype=">u8"), np.random.default_rng(1).integers(0, 256, (ROWS, 20), np.uint8)
    numbers = db.create_family("numbers")
    assert numbers.put_many(keys, values, sync=True) == ROWS
    assert list(numbers.items()) == [(n.to_bytes(8, "big"), values[n].tobytes()) for n in range(ROWS)]
    # Every second row, backwards: not one behind the other in memory.
    others = db.create_family("others")
    others.put_many(keys[::-2], values[::-2, 3:7])
    assert dict(others.items()) == {int(k).to_bytes(8, "big"): v.tobytes() for k, v in zip(keys[::-2], values[::-2, 3:7])}
    others.put_many(np.array([b"a", b"bc"], "S4"), np.array([b"1", b"2"], object))
    assert others[b"a\0\0\0"] == b"1" and others[b"bc\0\0"] == b"2"
    assert db.put_many([], []) == db.put_many(np.zeros(0, np.uint8), np.zeros((0, 4))) == 0


def test_what_cannot_go_in_is_refused_whole(db: siltstone.Db) -> None:
    for keys, values, error in (
        (KEYS, VALUES[1:], siltstone.InvalidError),
        (pa.array([b"a", None]), pa.array([b"a", b"b"]), ValueError),
        (pa.array([1, 2]), pa.array([b"a", b"b"]), TypeError),
        (np.array(["a"]), np.array([b"b"]), TypeError),
        (np.array(3), np.array(3), TypeError),
        (np.array([(1, None)], "i4,O"), np.array([b"b"]), TypeError),
        (np.array(["a"], np.dtypes.StringDType()), np.array([b"b"]), TypeError),
        (np.ma.masked_array([1, 2], [0, 1]), [b"a", b"b"], TypeError),
        (pa.table({"key": [b"a"], "value": [b"b"], "more": [1]}), None, ValueError),
        (pa.table({"key": [b"a"], "value": [b"b"], "timestamp": [-1]}), None, TypeError),
        (pa.table({"key": [b"a"], "value": [b"b"], "timestamp": pa.array([1], pa.uint64())}), None, siltstone.InvalidError),
        (["text"], [b""], TypeError),
        (pa.table({"key": [b"a"]}), None, ValueError),
        ([(b"a",)], None, ValueError),
    ):
        with pytest.raises(error):
            db.put_many(keys, values)
    assert list(db) == []


def test_scan_arrow_gives_what_scan_gives(db: siltstone.Db) -> None:
    db.put_many(KEYS, VALUES)
    table = db.scan_arrow(batch_rows=999).read_all()
    assert table.schema == pa.schema([pa.field(n, pa.binary(), False) for n in ("key", "value")])
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist())) == ITEMS
    assert [batch.num_rows for batch in db.scan_arrow(batch_rows=999)] == [999] * 5 + [5]
    assert pa.table(db.scan_arrow(b"000010", b"000020"))["key"].to_pylist() == KEYS[10:20]
    assert db.scan_arrow(prefix=b"none").read_all().num_rows == 0
    scan = db.scan_arrow()
    scan.read_all()
    with pytest.raises(siltstone.InvalidError):
        scan.read_all()
    with pytest.raises(siltstone.InvalidError):
        db.scan_arrow(batch_rows=0)
    events = db.create_family("events", timestamps="explicit", versions=0)
    events.put(b"k", b"1", timestamp=5)
    events.put(b"k", b"2", timestamp=6)
    versions = events.scan_arrow(timestamps=True).read_all()
    assert versions["timestamp"].to_pylist() == [6, 5]
    assert events.scan_arrow(batch_rows=1).read_all()["value"].to_pylist() == [b"2"]
    again = db.create_family("again", timestamps="explicit", versions=0)
    assert again.put_many(versions) == again.put_many(events.scan_arrow(timestamps=True)) == 2
    assert again.versions(b"k") == events.versions(b"k") == [(6, b"2"), (5, b"1")]


def test_an_error_within_a_stream_comes_out(place: pathlib.Path) -> None:
    def refuse(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        raise ValueError("no")

    families = {"default": {"merge_operator": "refuse"}}
    with siltstone.open(place, merge_operators={"refuse": refuse}, families=families) as db:
        db.put_many(KEYS, VALUES)
        db.merge(KEYS[15], b"x")
        reader = db.scan_arrow(batch_rows=10).reader()
        assert reader.read_next_batch().num_rows == 10
        with pytest.raises(Exception, match="refused key .*000015.*no"):
            reader.read_all()
        rows = db.items()
        for expected in ITEMS[:15]:
            assert next(rows) == expected
        with pytest.raises(siltstone.MergeRefusedError):
            next(rows)


def test_operators_run_while_another_library_reads(place: pathlib.Path) -> None:
    def add(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        return b"%d" % (int(base or b"0") + sum(map(int, operands)))

    families = {"default": {"merge_operator": "add"}}
    with siltstone.open(place, merge_operators={"add": add}, families=families) as db:
        for n in range(2000):
            db.merge(b"%04d" % (n % 500), b"1")
        assert set(db.scan_arrow().read_all()["value"].to_pylist()) == {b"4"}
        table = db.transact(lambda txn: pa.table(db.scan_arrow(batch_rows=7)))
        assert table.num_rows == 500
        other = db.create_family("other")
        other.update((key.as_py(), b"") for batch in db.scan_arrow(batch_rows=9) for key in batch["key"])
        assert len(list(other)) == 500

    def zero(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        raise ValueError("a zero \0 in it")

    with siltstone.open(place, merge_operators={"add": zero}) as db:
        db.merge(b"new", b"1")
        with pytest.raises(Exception, match="a zero"):
            db.scan_arrow(b"new").read_all()


def test_what_was_taken_cannot_be_taken_again(db: siltstone.Db) -> None:
    class Same:
        def __init__(self) -> None:
            self.capsules = pa.array([b"a"]).__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return self.capsules

    same = Same()
    with pytest.raises(ValueError, match="taken"):
        db.put_many(same, same)


def test_rows_beyond_the_write_memory_are_put_in_smaller_batches(place: pathlib.Path) -> None:
    rows = {b"%06d" % n: b"v" * 100 for n in range(3000)}
    with siltstone.open(place, write_memory=65536, memory_budget=1 << 20) as db:
        assert db.put_many(list(rows), list(rows.values())) == 3000
        large = {b"a": b"x" * 60_000, b"b": b"y" * 60_000, b"c": b"z" * 60_000}
        assert db.put_many(list(large.items())) == 3
        assert dict(db) == {**rows, **large}
