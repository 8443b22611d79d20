"""A store of each kind, empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevet.store import Store, open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state' / 'history.sqlite'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as found:
        yield found
