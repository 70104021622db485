from __future__ import annotations

import pathlib
import typing

import pytest

import siltstone


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "db"


@pytest.fixture
def db(place: pathlib.Path) -> typing.Iterator[siltstone.Db]:
    with siltstone.open(place) as db:
        yield db
