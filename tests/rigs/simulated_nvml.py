"""The simulated NVML library for what runs here, not on a node."""

import shutil
from pathlib import Path

import pytest

from nodevet_sim.library import build


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built once."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return build(tmp_path_factory.mktemp("nvml"))
