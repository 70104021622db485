"""The example on real data runs to its end."""

from __future__ import annotations

import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "packages.py"


def test_the_package_example_loads_reads_and_survives_a_kill(tmp_path: pathlib.Path) -> None:
    ended = subprocess.run([sys.executable, str(EXAMPLE), str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert "loaded" in ended.stdout and "without a gap" in ended.stdout
