"""Siltstone in half a minute, on real data: `python packages.py [DIR]`.

Loads the machine's Debian package index, reads it back in two ways, kills a second process in the middle of its load and
shows that nothing that was promised is lost."""

from __future__ import annotations

import itertools
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

import siltstone

Row = typing.Tuple[bytes, bytes]

# How often the second process waits until its rows are safe from a power loss.
SYNC_EVERY = 100


def rows() -> list[Row]:
    """Each field of each package under the key `package/Field`; of made-up packages where there is no index."""
    try:
        text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout.decode(errors="replace")
    except (OSError, subprocess.CalledProcessError):
        text = ""
    if text.count("\n\n") < 1000:
        text = "".join(
            f"Package: silt{n}\nVersion: {n}.{n % 7}\nDescription: layers of silt,\n part {n}\n\n" for n in range(2000)
        )
    found: dict[bytes, bytes] = {}
    seen = set()
    for record in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in record.replace("\n ", " ").splitlines() if ":" in line)
        package = fields.get("Package", "").strip()
        if package and package not in seen:
            seen.add(package)
            found.update((f"{package}/{name}".encode(), value.strip().encode()) for name, value in fields.items())
    return list(found.items())


def package_of(row: Row) -> bytes:
    return row[0].split(b"/")[0]


def load(db: siltstone.Db, all_rows: list[Row]) -> None:
    begun = time.perf_counter()
    for _, package in itertools.groupby(all_rows, package_of):
        with db.batch() as batch:  # all of a package or nothing
            for key, value in package:
                batch[key] = value
    db.sync()
    print(f"loaded {len(all_rows):,} rows in {time.perf_counter() - begun:.1f} s")


def read(db: siltstone.Db, all_rows: list[Row]) -> None:
    package = next((package_of(row) for row in all_rows if row[0].startswith(b"bash/")), package_of(all_rows[0]))
    print(f"{package.decode()} has version {db[package + b'/Version'].decode()}")
    for key, value in db.scan(prefix=package + b"/"):
        print(f"  {key.decode():<28} {value[:72].decode(errors='replace')}")
    assert sum(1 for _ in db.keys()) == len(all_rows)


def crash(place: pathlib.Path, all_rows: list[Row]) -> None:
    """What the second process reported as safe must be there, and what is there is the beginning of the load, whole."""
    words = [sys.executable, __file__, "--load-until-killed", str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        acknowledged = 0
        # Reads on after the kill: reports that were already in the pipe were promises, too.
        for line in child.stdout:
            acknowledged = int(line)
            if acknowledged >= len(all_rows) // 4:
                child.kill()
    assert child.returncode < 0, "it was killed"
    with siltstone.open(place) as db:
        there = {key: value for key, value in db.items()}
    assert len(there) >= acknowledged
    assert all(there.get(key) == value for key, value in all_rows[: len(there)])
    print(f"killed: {acknowledged:,} rows were acknowledged, the first {len(there):,} are there, without a gap")


def load_until_killed(place: str) -> None:
    db = siltstone.open(place)
    for number, (key, value) in enumerate(rows(), 1):
        sync = number % SYNC_EVERY == 0
        db.put(key, value, sync=sync)
        if sync:
            print(number, flush=True)
    sys.stdin.read()  # all loaded before the other could strike: until it does


def tour(place: pathlib.Path) -> None:
    all_rows = rows()
    with siltstone.open(place / "db") as db:
        load(db, all_rows)
        read(db, all_rows)
        db.flush()
        db.wait_idle()
        stats = db.stats()
        done = f"{stats['flushes']} flushes and {stats['compactions']} compactions"
        print(f"{done} wrote {stats['sstable_bytes']:,} bytes of SSTables")
    crash(place / "crashed", all_rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load-until-killed"]:
        load_until_killed(sys.argv[2])
    elif len(sys.argv) > 1:
        tour(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            tour(pathlib.Path(directory))
