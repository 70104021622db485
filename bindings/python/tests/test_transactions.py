from __future__ import annotations

import pathlib
import threading

import pytest

import siltstone


def test_a_transaction_is_all_or_nothing(db: siltstone.Db) -> None:
    db[b"a"] = b"1"
    with db.transaction() as txn:
        txn[b"b"] = txn[b"a"]
        del txn[b"a"]
        assert (b"a" in txn, b"b" in txn, db.get(b"b")) == (False, True, None)
        txn.savepoint()
        txn[b"c"] = b"2"
        assert txn.rollback_to_savepoint() and not txn.rollback_to_savepoint()
        assert list(txn.scan()) == [(b"b", b"1")]
    assert list(db.items()) == [(b"b", b"1")]
    with pytest.raises(siltstone.ClosedError):
        txn.get(b"a")
    with pytest.raises(RuntimeError), db.transaction() as txn:
        txn[b"d"] = b"3"
        raise RuntimeError
    assert b"d" not in db
    txn = db.transaction()
    txn[b"d"] = b"3"
    txn.rollback()
    assert b"d" not in db


def test_of_two_that_meet_one_is_refused(db: siltstone.Db) -> None:
    db[b"n"] = b"0"
    one, two = db.transaction(), db.transaction()
    for txn in (one, two):
        txn[b"n"] = b"%d" % (int(txn[b"n"]) + 1)
    one.commit()
    with pytest.raises(siltstone.ConflictError):
        two.commit()
    # At snapshot isolation what was only read may change, unless it was read for update.
    for for_update in (False, True):
        txn = db.transaction(isolation="snapshot")
        txn.get(b"n", for_update=for_update)
        txn[b"other"] = b""
        db[b"n"] = b"7"
        if for_update:
            with pytest.raises(siltstone.ConflictError):
                txn.commit()
        else:
            txn.commit()
    with pytest.raises(siltstone.InvalidError):
        db.transaction(isolation="none")  # type: ignore[arg-type]


def test_scans_of_a_transaction_go_on_behind_their_last_key(db: siltstone.Db) -> None:
    for n in range(900):
        db[b"%03d" % n] = b"%d" % n
    txn = db.transaction()
    txn[b"010"] = b"own"
    del txn[b"020"]
    everything = [(b"%03d" % n, b"own" if n == 10 else b"%d" % n) for n in range(900) if n != 20]
    assert list(txn.scan()) == everything and list(txn.scan(reverse=True)) == everything[::-1]
    assert list(txn.scan(b"005", b"030")) == [e for e in everything if b"005" <= e[0] < b"030"]
    assert list(txn.scan(prefix=b"01")) == everything[10:20]
    # A phantom: something that was written into the range that was read.
    db[b"0205"] = b"x"
    with pytest.raises(siltstone.ConflictError):
        txn.commit()
    txn = db.transaction()
    scan = txn.scan()
    next(scan)
    txn.rollback()
    with pytest.raises(siltstone.ClosedError):
        next(scan)


def test_a_refused_key_ends_a_scan_of_a_transaction(place: pathlib.Path) -> None:
    def refuse(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        raise ValueError("no")

    families = {"default": {"merge_operator": "refuse"}}
    with siltstone.open(place, merge_operators={"refuse": refuse}, families=families) as db:
        db.put_many([b"%02d" % n for n in range(30)], [b"v"] * 30)
        db.merge(b"10", b"x")
        scan = db.transaction().scan()
        assert [next(scan)[0] for _ in range(10)] == [b"%02d" % n for n in range(10)]
        with pytest.raises(siltstone.MergeRefusedError):
            next(scan)
        assert list(scan) == []


def test_transact_repeats_until_nobody_is_in_the_way(db: siltstone.Db) -> None:
    db[b"n"] = b"0"
    calls = []

    def add(txn: siltstone.Transaction) -> int:
        calls.append(1)
        n = int(txn[b"n"]) + 1
        txn[b"n"] = b"%d" % n
        return n

    def work() -> None:
        for _ in range(50):
            db.transact(add, retries=10_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db[b"n"] == b"200" and len(calls) >= 200

    def meets(txn: siltstone.Transaction) -> None:
        txn[b"n"] = txn[b"n"]
        db[b"n"] = b"0"

    with pytest.raises(siltstone.ConflictError):
        db.transact(meets, retries=3)
    with pytest.raises(KeyError):
        db.transact(lambda txn: txn[b"nothing"])


def test_work_is_not_repeated_for_what_others_write_delete_and_flush_beside_it(db: siltstone.Db) -> None:
    calls = []

    def work(txn: siltstone.Transaction) -> None:
        calls.append(1)
        assert b"absent" not in txn
        db[b"queue 1"] = b"x"
        db.delete_range(b"queue", b"queuf")
        db.flush()
        txn[b"k"] = b"v"

    db.transact(work)
    assert len(calls) == 1 and db[b"k"] == b"v"
