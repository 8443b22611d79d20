"""An empty store of each kind: what takes `url` or `store` runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nodevet.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'history.sqlite'}"
    found: str = request.getfixturevalue("postgres").database()
    return found


@pytest.fixture
def store(url: str) -> "Iterator[Store]":
    from nodevet.store import open_store  # tests without a store do not pay for it

    with open_store(url) as opened:
        yield opened
