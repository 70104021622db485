"""What a write promised is there after a kill at any moment; of a batch all or nothing."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import siltstone

ROUNDS = int(os.environ.get("SILTSTONE_KILLS", "8"))

WRITER = """
import sys, siltstone
db = siltstone.open(sys.argv[1], write_memory=1 << 20, memory_budget=4 << 20)
n = int(sys.argv[2])
while True:
    with db.batch(sync=n % 50 == 0) as batch:
        for part in range(3):
            batch[b"%d/%08d" % (part, n)] = b"%d" % n * 20
    db.put(b"newest", b"%d" % n)
    # Told only now: all before it was acknowledged.
    sys.stdout.write("%d\\n" % n)
    sys.stdout.flush()
    n += 1
"""


def test_kills(place: pathlib.Path) -> None:
    seed = int(os.environ.get("SILTSTONE_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"SILTSTONE_SEED={seed}")
    chance, told = random.Random(seed), -1
    for _ in range(ROUNDS):
        args = [sys.executable, "-c", WRITER, str(place), str(told + 1)]
        writer = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        assert first
        time.sleep(chance.uniform(0, 0.3))
        writer.send_signal(signal.SIGKILL)
        lines = [first, *writer.stdout.read().splitlines(keepends=True)]
        writer.wait()
        told = max(int(line) for line in lines if line.endswith("\n"))
        with siltstone.open(place) as db:
            parts = [[int(key[2:]) for key in db.keys(prefix=b"%d/" % part)] for part in range(3)]
            # The one that was under way may be there, and then whole.
            assert parts[0] == parts[1] == parts[2]
            assert parts[0] in (list(range(told + 1)), list(range(told + 2)))
            assert int(db[b"newest"]) in (told, told + 1)
            assert all(value == b"%d" % int(key[2:]) * 20 for key, value in db.scan(b"0", b"3"))
            told = parts[0][-1]
        assert siltstone.check(place)["damages"] == []
