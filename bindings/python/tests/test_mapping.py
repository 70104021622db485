"""Reading and writing as with a dictionary, and what belongs around it."""

from __future__ import annotations

import pathlib
import pickle
import typing
from datetime import datetime, timedelta, timezone

import pytest

import siltstone


def filled(db: siltstone.Family, count: int = 10) -> list[tuple[bytes, bytes]]:
    items = [(b"%03d" % n if count < 1000 else b"%04d" % n, b"value %d" % n) for n in range(count)]
    db.update(items)
    return items


def test_a_family_is_used_like_a_dictionary(db: siltstone.Db) -> None:
    items = filled(db)
    assert list(db) == list(db.keys()) == [key for key, _ in items]
    assert list(db.values()) == [value for _, value in items]
    assert list(db.items()) == items
    assert dict(db) == dict(items)
    assert (b"003" in db, b"x" in db, db[b"003"], db.get(b"x"), db.get(b"x", 7)) == (True, False, b"value 3", None, 7)
    with pytest.raises(KeyError) as missing:
        db[b"x"]
    assert missing.value.args == (b"x",)
    del db[b"003"]
    assert b"003" not in db
    db.update({b"a": b"0"})
    db.update([[b"a", b"1"]])
    with pytest.raises(ValueError, match="two parts"):
        db.update([(b"a", b"b", b"c")])
    copy = db.create_family("copy")
    copy.update(db)
    assert dict(copy.items()) == dict(db.items())
    assert db.last() == (b"a", b"1") and db.first() == items[0]
    assert db.get_many([b"000", b"nothing", b"a"]) == [b"value 0", None, b"1"]


def test_ranges_by_ends_prefix_and_slice(db: siltstone.Db) -> None:
    items = filled(db, 200)
    assert list(db.scan(b"010", b"020")) == list(db[b"010":b"020"]) == items[10:20]
    assert list(db.scan(prefix=b"01")) == items[10:20]
    assert list(db.scan(b"190")) == list(db[b"190":]) == items[190:]
    assert list(db.scan(b"010", b"020", reverse=True)) == items[10:20][::-1]
    assert list(db.scan(reverse=True)) == items[::-1]
    assert list(db.scan(b"020", b"010")) == []
    with pytest.raises(siltstone.InvalidError, match="prefix"):
        db.scan(b"0", prefix=b"1")
    with pytest.raises(TypeError, match="step"):
        db[b"0":b"1":2]
    del db[b"010":b"190"]
    assert list(db) == [key for key, _ in items[:10] + items[190:]]
    db.delete_range(prefix=b"19")
    assert len(list(db)) == 10
    assert db.estimate() == (0, 0)
    db.flush()
    assert db.estimate()[1] >= 10


def test_keys_are_anything_that_holds_bytes(db: siltstone.Db) -> None:
    db[bytearray(b"a")] = memoryview(b"xyz")[1:]
    assert db[b"a"] == b"yz" and db[memoryview(b"a")] == b"yz"
    for wrong in ("text", 1, None, [1, 2]):
        with pytest.raises(TypeError, match="bytes"):
            db[wrong] = b""  # type: ignore[index]
    with pytest.raises(siltstone.InvalidError):
        db.put(b"k" * (1 << 17), b"")
    assert issubclass(siltstone.InvalidError, ValueError)


def test_a_scan_sees_the_moment_it_began(db: siltstone.Db) -> None:
    items = filled(db, 5000)
    scan = db.scan()
    first = next(scan)
    db.delete_range()
    assert [first, *scan] == items
    assert list(scan) == [] and list(db) == []
    scan.close()
    with pytest.raises(siltstone.ClosedError):
        next(scan)


def test_cursors_go_both_ways(db: siltstone.Db) -> None:
    items = filled(db, 100)
    cursor = db.cursor()
    assert not cursor and cursor.key is None
    assert cursor.seek(b"0505") and (cursor.key, cursor.value) == items[51]
    assert cursor.prev() and cursor.key == b"050"
    assert cursor.seek_back(b"0505") and cursor.key == b"050"
    assert cursor.last() and cursor.key == b"099" and not cursor.next() and not cursor
    assert cursor.first() and cursor.next() and cursor.key == b"001" and cursor.timestamp == 0


def test_snapshots_and_their_families(db: siltstone.Db) -> None:
    other = db.create_family("other")
    other[b"k"] = db[b"k"] = b"1"
    with db.snapshot() as then:
        of_other = then.family("other")
        db[b"k"] = other[b"k"] = b"2"
        assert (then[b"k"], of_other[b"k"], then.family(other).get(b"k")) == (b"1", b"1", b"1")
        assert list(then.scan()) == [(b"k", b"1")]
        assert db.stats()["snapshots"] == 1
    assert db.stats()["snapshots"] == 0
    for reader in (then, of_other):
        with pytest.raises(siltstone.ClosedError):
            reader.get(b"k")


def test_versions_timestamps_and_ttl(db: siltstone.Db) -> None:
    events = db.create_family("events", timestamps="explicit", versions=0, ttl=timedelta(days=365))
    assert events.options["ttl_us"] == 365 * 86400 * 10**6
    now = datetime.now(timezone.utc)
    us = (now - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    for n in range(5):
        events.put(b"door", b"%d" % n, timestamp=now + timedelta(microseconds=n))
    assert events.versions(b"door") == [(us + n, b"%d" % n) for n in (4, 3, 2, 1, 0)]
    assert [value for _, value in events.versions(b"door", 2, times=(None, us + 3))] == [b"2", b"1"]
    events.put(b"gate", b"g", timestamp=us)
    newest = [(b"door", b"4"), (b"gate", b"g")]
    assert list(events.items()) == list(events.scan()) == newest and list(events) == [b"door", b"gate"]
    assert list(events.scan(reverse=True)) == newest[::-1] and list(events.scan(times=(us, us + 2)))[0] == (b"door", b"1")
    events.delete(b"gate")
    assert events.first() == events.last() == newest[0]
    assert [t - us for _, t, _ in events.scan(timestamps=True, times=(us + 1, us + 3))] == [2, 1]
    events.delete(b"door", timestamp=us + 1)
    assert len(events.versions(b"door")) == 3
    events.put(b"old", b"", timestamp=now - timedelta(days=366))
    assert events.get(b"old") is None
    with pytest.raises(TypeError, match="time zone"):
        events.put(b"door", b"", timestamp=datetime(2020, 1, 1))
    with pytest.raises(OverflowError):
        events.put(b"door", b"", timestamp=-1)


def test_batches_across_families(db: siltstone.Db) -> None:
    other = db.create_family("other")
    with db.batch() as batch:
        batch[b"a"] = b"1"
        batch.put(b"b", b"2", family=other)
        del batch[b"z"]
        batch.delete_range(b"x", b"y", family=db)
        assert len(batch) == 4 and batch.nbytes > 4 and b"a" not in db
    assert db[b"a"] == b"1" and other[b"b"] == b"2"
    with pytest.raises(ZeroDivisionError), db.batch(sync=True) as batch:
        batch[b"a"] = b"3"
        1 / 0
    assert db[b"a"] == b"1"
    batch[b"c"] = b"4"
    assert batch.write(sync=True) > 0 and db[b"c"] == b"4" and len(batch) == 0


def test_families_and_their_options(db: siltstone.Db, place: pathlib.Path) -> None:
    family = db.create_family("f", strategy="size_tiered{runs=4}", compression="zstd:7", bloom_bits=12)
    assert family.name == "f" and list(family.options["strategy"]) == ["size_tiered"] and family.options["bloom_bits"] == 12
    family.alter(bloom_bits=8)
    assert family.options["bloom_bits"] == 8 and family.options["compression"] == "zstd:7"
    family.alter(write_memory="64MiB", ttl_us="30days")
    assert family.options["write_memory"] == 64 << 20 and family.options["ttl_us"] == 30 * 86400 * 10**6
    family.alter(ttl=None)
    assert db.families == ["default", "f"]
    for call in (
        lambda: db.create_family("g", blom_bits=3),
        lambda: db.create_family("g", strategy="smaa"),
        lambda: db.create_family("g", write_memory="64 feet"),
        lambda: db.create_family("f"),
        lambda: siltstone.open(place / "x", memory=3),
        lambda: siltstone.open(place / "x", write_memory="much"),
    ):
        with pytest.raises(siltstone.InvalidError):
            call()
    family[b"k"] = b"v"
    db.drop_family("f")
    with pytest.raises(siltstone.NotFoundError):
        db.family("f")
    with pytest.raises(siltstone.NotFoundError):
        family.put(b"k", b"v")


def test_merge_operators_and_filters_in_python(place: pathlib.Path) -> None:
    def append(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        if b"bad" in operands:
            raise ValueError("this operand is bad")
        return b",".join(([] if base is None else [base]) + operands)

    named: dict[str, dict[str, object]] = {"default": {"merge_operator": "append", "compaction_filter": "drafts"}}
    operators = {"append": append}
    filters = {"drafts": lambda key, timestamp, value, now: key.startswith(b"draft")}
    with siltstone.open(place, families=named, merge_operators=operators, filters=filters) as db:
        for operand in (b"1", b"2", b"3"):
            db.merge(b"k", operand)
        db.merge(b"broken", b"bad")
        db[b"draft 1"] = b"x"
        assert db[b"k"] == b"1,2,3" and b"draft 1" not in db
        db.flush()
        db.compact()
        assert db[b"k"] == b"1,2,3"
        with pytest.raises(siltstone.MergeRefusedError, match="this operand is bad"):
            db.get(b"broken")
    with siltstone.open(place) as db, pytest.raises(siltstone.UnsupportedError, match="append|drafts"):
        db.get(b"k")


def test_versions_that_come_in_many_askings(db: siltstone.Db) -> None:
    events = db.create_family("events", timestamps="explicit", versions=0)
    with events.batch() as batch:
        for n in range(300):
            for time in range(1 + n * 7 % 11):
                batch.put(b"%03d" % n, b"%d" % time, timestamp=time + 1)
    newest = [(b"%03d" % n, b"%d" % (n * 7 % 11)) for n in range(300)]
    for reader in (events, db.snapshot().family(events)):
        assert list(reader.scan()) == newest and list(reader.scan(reverse=True)) == newest[::-1]
        assert list(reader.keys(reverse=True)) == [key for key, _ in newest][::-1]
    txn = db.transaction()
    assert list(txn.scan(family=events)) == newest and list(txn.scan(family=events, reverse=True)) == newest[::-1]
    versions = list(events.scan(timestamps=True))
    assert len(versions) == sum(1 + n * 7 % 11 for n in range(300))
    assert list(events.scan(timestamps=True, reverse=True)) == versions[::-1]


def test_an_interrupt_within_an_operator_reaches_the_program(place: pathlib.Path) -> None:
    def interrupted(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        raise KeyboardInterrupt

    families = {"default": {"merge_operator": "m"}}
    with siltstone.open(place, families=families, merge_operators={"m": interrupted}) as db:
        db.merge(b"k", b"1")
        with pytest.raises(KeyboardInterrupt):
            try:
                db.get(b"k")
            except siltstone.MergeRefusedError:
                # Python looks for interrupts between its own steps.
                for _ in range(1000):
                    pass


def test_what_is_closed_says_so(place: pathlib.Path) -> None:
    db = siltstone.open(place)
    db[b"k"] = b"v"
    scan, transaction, snapshot, batch = db.scan(), db.transaction(), db.snapshot(), db.batch()
    with pytest.raises(siltstone.BusyError):
        siltstone.open(place)
    db.close()
    db.close()
    batch[b"k"] = transaction[b"k"] = b"w"
    for call in (lambda: db[b"k"], lambda: db.put(b"k", b""), lambda: snapshot.get(b"k"),
                 transaction.commit, batch.write, db.flush):
        with pytest.raises(siltstone.ClosedError):
            call()
    # A scan holds what it reads, so that it may go on.
    assert list(scan) == [(b"k", b"v")]
    with siltstone.open(place, read_only=True) as db:
        assert db[b"k"] == b"v"
        with pytest.raises(siltstone.ReadOnlyError):
            db[b"k"] = b"w"
    with pytest.raises(siltstone.NotFoundError):
        siltstone.open(place.parent / "none", create_if_missing=False)


def test_damage_is_told_with_file_and_offset(place: pathlib.Path) -> None:
    with siltstone.open(place) as db:
        db.update((b"%06d" % n, b"x" * 100) for n in range(1000))
        db.flush()
    table = next(place.glob("*.table"))
    content = bytearray(table.read_bytes())
    content[3000] ^= 1
    table.write_bytes(content)
    assert siltstone.check(place)["damages"]
    with siltstone.open(place) as db, pytest.raises(siltstone.CorruptionError) as raised:
        list(db)
    assert raised.value.file and raised.value.file.endswith(".table") and raised.value.offset is not None
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.offset) == (type(raised.value), str(raised.value), raised.value.offset)
    assert siltstone.repair(place)["lost"]
    with siltstone.open(place) as db:
        assert len(list(db)) < 1000
        with pytest.raises(siltstone.BusyError):
            siltstone.destroy(place)
    siltstone.destroy(place)
    with pytest.raises(siltstone.NotFoundError):
        siltstone.destroy(place)


def test_backup_restore_checkpoint_and_statistics(db: siltstone.Db, tmp_path: pathlib.Path) -> None:
    db[b"k"] = b"1"
    assert db.backup(tmp_path / "backups")["id"] == 1
    db[b"k"] = b"2"
    assert db.backup(tmp_path / "backups")["id"] == 2
    assert [backup["id"] for backup in siltstone.list_backups(tmp_path / "backups")] == [1, 2]
    siltstone.restore(tmp_path / "backups", tmp_path / "restored", id=1)
    db.checkpoint(tmp_path / "checkpoint")
    for copy, value in (("restored", b"1"), ("checkpoint", b"2")):
        with siltstone.open(tmp_path / copy) as other:
            assert other[b"k"] == value
    statistics = db.stats()
    assert statistics["writes"] == 2 and isinstance(statistics["background_error"], (str, type(None)))
    db.flush()
    assert db.family_stats()["flushes"] == 1 and db.events()
    db.sync()
    db.wait_idle()
    db.set_rate_limit(1 << 30)
    db.set_memory_limits(32 << 20, 128 << 20)


def test_a_compaction_writes_anew_where_that_is_asked_for(db: siltstone.Db) -> None:
    filled(db)

    def compactions() -> int:
        return int(db.stats()["compactions"])

    db.compact()
    before = compactions()
    db.compact()
    assert compactions() == before
    db.compact(rewrite=True)
    assert compactions() == before + 1


def test_a_path_may_be_bytes_and_nothing_but_a_path(tmp_path: pathlib.Path) -> None:
    place = bytes(tmp_path / "by bytes")
    with siltstone.open(place) as db:
        db[b"k"] = b"v"
        db.checkpoint(place + b" copied")
        db.backup(place + b" backups")
    with siltstone.open(pathlib.Path(tmp_path / "by bytes copied")) as db:
        assert db[b"k"] == b"v"
    assert len(siltstone.list_backups(place + b" backups")) == 1
    siltstone.check(place)
    siltstone.destroy(place)
    with pytest.raises(TypeError, match="PathLike"):
        siltstone.open(5)  # type: ignore[arg-type]


def test_a_directory_of_other_things_is_left_alone(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    files = {"letter.new": b"dear", "syslog.log": b"Jan 1 00:00:00 host kernel: booted"}
    for name, content in files.items():
        (home / name).write_bytes(content)
    with pytest.raises(siltstone.InvalidError, match="holds no database but other things"):
        siltstone.open(home)
    calls: list[typing.Callable[[pathlib.Path], object]] = [siltstone.check, siltstone.repair, siltstone.destroy]
    for refused in calls:
        with pytest.raises(siltstone.NotFoundError, match="holds no database"):
            refused(home)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == files


def test_what_is_to_be_called_must_be_callable(place: pathlib.Path) -> None:
    with pytest.raises(TypeError, match='merge operator "sum" cannot be called'):
        siltstone.open(place, merge_operators={"sum": 5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match='filter "old" cannot be called'):
        siltstone.open(place, filters={"old": b"x"})  # type: ignore[dict-item]
    assert not place.exists()


def test_an_operator_reads_its_own_database_and_is_refused_what_would_wait_for_it(place: pathlib.Path) -> None:
    said: list[object] = []

    def put() -> None:
        db[b"y"] = b"1"

    def add(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        said.append(db[b"x"])
        calls: list[typing.Callable[[], None]] = [db.flush, db.compact, db.wait_idle, db.close, put]
        for call in calls:
            with pytest.raises(siltstone.InvalidError, match="may only read"):
                call()
        return b"%d" % sum(map(int, [base or b"0", *operands]))

    with siltstone.open(place, merge_operators={"add": add}, families={"m": {"merge_operator": "add"}}) as db:
        db[b"x"] = b"1"
        family = db.family("m")
        family[b"k"] = b"1"
        family.merge(b"k", b"2")
        assert family[b"k"] == b"3"
        family.flush()
        family.compact()
        assert family[b"k"] == b"3" and said and set(said) == {b"1"}
