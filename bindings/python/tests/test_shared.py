"""Shared databases: the local directory may go, and whoever opens one last has it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil

import pytest

import siltstone


def test_what_was_written_is_there_in_another_directory(tmp_path: pathlib.Path) -> None:
    shared, here, there = (tmp_path / name for name in ("shared", "here", "there"))
    with siltstone.open(here, shared=shared) as db:
        db[b"river"] = b"silt"
        db.create_family("history", versions=2, timestamps="explicit").put(b"k", b"v", timestamp=7)
        db.put_many([b"%06d" % n for n in range(1000)], [b"x" * 100] * 1000)
        db.flush()
        db[b"newest"] = b"in memory"
    shutil.rmtree(here)
    with siltstone.open(there, shared=str(shared)) as db:
        assert (db[b"river"], db[b"newest"], len(list(db))) == (b"silt", b"in memory", 1002)
        assert list(db.family("history").versions(b"k")) == [(7, b"v")]
        del db[b"river"]
    with siltstone.open(there, shared=shared) as db:
        assert b"river" not in db


def test_who_opened_it_before_writes_no_more(tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "shared"
    first = siltstone.open(tmp_path / "first", shared=shared)
    first[b"k"] = b"1"
    with siltstone.open(tmp_path / "second", shared=shared) as second:
        second[b"k"] = b"2"
        for _ in range(2):
            with pytest.raises((siltstone.BusyError, siltstone.PoisonedError), match="another process"):
                first[b"k"] = b"3"
        assert second[b"k"] == b"2"
        second[b"k"] = b"4"
    with contextlib.suppress(siltstone.Error):
        first.close()


def test_what_cannot_be_meant_is_refused(tmp_path: pathlib.Path) -> None:
    shared, here = tmp_path / "shared", tmp_path / "here"
    siltstone.open(here, shared=shared).close()
    with pytest.raises(siltstone.InvalidError, match="local part .* option shared"):
        siltstone.open(here)
    with pytest.raises(siltstone.InvalidError, match="shared"):
        siltstone.open(here, shared=shared, sstable_store=str(tmp_path / "tables"))
    with pytest.raises(siltstone.UnsupportedError, match="s3://bucket/prod"):
        siltstone.open(tmp_path / "far", shared="s3://bucket/prod")
    with pytest.raises(siltstone.InvalidError, match="option shared"):
        siltstone.open(here, shared="")
    with pytest.raises(TypeError):
        siltstone.open(here, shared=3)  # type: ignore[arg-type]


def test_a_relative_place_is_below_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    siltstone.open("here", shared="prod").close()
    assert os.listdir(tmp_path / "prod")
