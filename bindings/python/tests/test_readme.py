"""The Python that the project's first page shows."""

from __future__ import annotations

import pathlib
import re

import pytest


def test_what_the_first_page_shows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = pathlib.Path(__file__).parents[3] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks[0], str(page), "exec"), {})
    assert capsys.readouterr().out == "[(b'lake', b'mud')]\n"
