"""Threads, forks, and the end of the interpreter."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
import typing

import pytest

import siltstone


def test_other_threads_run_while_one_waits(db: siltstone.Db) -> None:
    turns, done = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0)

    counter = threading.Thread(target=count)
    counter.start()
    before = turns
    for n in range(200):
        db.put(b"%d" % n, b"x", sync=True)
    done.set()
    counter.join()
    assert turns > before


def test_many_threads_read_and_write(db: siltstone.Db) -> None:
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for n in range(500):
                key = b"%d/%04d" % (own, n)
                db[key] = key
                assert db[key] == key
            assert len(list(db.scan(prefix=b"%d/" % own))) == 500
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(list(db)) == 3000


def test_one_scan_in_two_threads_steps_or_refuses(db: siltstone.Db) -> None:
    db.put_many([b"%06d" % n for n in range(20_000)], [b"x"] * 20_000)
    scan, rows, refused = db.keys(), [], []

    def work() -> None:
        while True:
            try:
                rows.append(next(scan))
            except StopIteration:
                return
            except RuntimeError as busy:
                refused.append(busy)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rows) == list(db)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_is_refused_and_harms_nothing(place: pathlib.Path) -> None:
    db = siltstone.open(place)
    db[b"k"] = b"v"
    held = (db.scan(), db.cursor(), db.transaction(), db.snapshot(), db.batch(), db.create_family("f"))
    child = os.fork()
    if child == 0:
        # Nothing of the test program may run on in the child.
        status = 1
        try:
            calls: list[typing.Callable[[], object]] = [
                lambda: db[b"k"], lambda: next(held[0]), held[1].first, held[2].commit, held[3].close, held[4].write,
                held[5].flush, db.close,
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except siltstone.ClosedError as closed:
                    refused += "forked" in str(closed)
            del db, held, calls, call
            status = 0 if refused == 8 else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    db[b"l"] = b"w"
    db.flush()
    assert db[b"k"] == b"v"
    db.close()
    with siltstone.open(place) as again:
        assert len(list(again)) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_does_not_keep_the_directory(place: pathlib.Path) -> None:
    db = siltstone.open(place)
    ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready[1])
        os.read(ready[0], 1)
        os._exit(0)
    db.close()
    with siltstone.open(place) as again:
        again[b"k"] = b"v"
    os.write(ready[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in ready:
        os.close(end)


def test_the_last_handle_may_go_while_operators_run(place: pathlib.Path) -> None:
    def slow(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        time.sleep(0.0005)
        return b"".join([base or b"", *operands])

    families = {"default": {"merge_operator": "slow"}}
    for _ in range(3):
        db = siltstone.open(place, merge_operators={"slow": slow}, families=families,
                            write_memory=64 << 10, memory_budget=1 << 20)
        scan = db.scan()
        for n in range(1500):
            db.merge(b"%d" % (n % 50), b"x" * 20)
        del db
        del scan


ENDING = """
import sys, siltstone
def add(key, base, operands):
    return b"%d" % (int(base or b"0") + sum(map(int, operands)))
db = siltstone.open(sys.argv[1], merge_operators={"add": add}, families={"default": {"merge_operator": "add"}},
                    write_memory=64 << 10, memory_budget=1 << 20)
for n in range(20_000):
    db.merge(b"%d" % (n % 50), b"1")
# The program ends here, and leaves it open, with compactions under way.
"""


def test_a_program_may_end_with_its_database_open(place: pathlib.Path) -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", ENDING, str(place)], check=True, timeout=60)
    add = lambda key, base, operands: b"%d" % (int(base or b"0") + sum(map(int, operands)))  # noqa: E731
    with siltstone.open(place, merge_operators={"add": add}) as db:
        assert {value for _, value in db.items()} == {b"1200"}


ELSEWHERE = """
import os, sys, siltstone
os.chdir(sys.argv[1])
db = siltstone.open("db", write_memory=1 << 20, memory_budget=4 << 20)
db[b"first"] = b"x"
os.chdir(sys.argv[2])
for n in range(5_000):
    db[b"%06d" % n] = b"%d" % n * 200
    if n % 1_000 == 0:
        db.flush()
db.flush()
db.compact()
db.wait_idle()
db[b"last"] = b"x"
db.close()
"""


def test_a_relative_path_means_the_directory_of_when_it_was_opened(tmp_path: pathlib.Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with siltstone.open(there / "db") as other:
        other[b"theirs"] = b"x"
    before = {path.name: path.read_bytes() for path in (there / "db").iterdir()}
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(here), str(there)], check=True, timeout=60)
    assert {path.name: path.read_bytes() for path in (there / "db").iterdir()} == before
    assert [path.name for path in there.iterdir()] == ["db"]
    for place, keys in ((here, [*(b"%06d" % n for n in range(5_000)), b"first", b"last"]), (there, [b"theirs"])):
        assert siltstone.check(place / "db")["damages"] == []
        with siltstone.open(place / "db") as db:
            assert list(db) == keys
