"""A store of each kind, empty: every test of this folder runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevet.store import Store, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'history.sqlite'}"
    found: str = request.getfixturevalue("postgres").database()
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as found:
        yield found
