"""IMEX's peers and channels on trees of files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import imex

Check = Callable[[str, dict[str, Any]], Any]


def test_peers_and_channels(tmp_path: Path, check: Check) -> None:
    root = str(tmp_path.resolve())
    found = check("imex", imex.collect(root, {}))
    assert (found.nodes, found.channels) == ((), 0)
    (tmp_path / "etc/nvidia-imex").mkdir(parents=True)
    (tmp_path / "etc/nvidia-imex/nodes_config.cfg").write_text("#x\n10.0.0.1\n fd00::2 # y\n\n")
    channels = tmp_path / "dev/nvidia-caps-imex-channels"
    channels.mkdir(parents=True)
    for name in ("channel0", "channel2047", "other", "channel"):
        (channels / name).touch()
    found = check("imex", imex.collect(root, {}))
    assert (found.nodes, found.channels) == (("10.0.0.1", "fd00::2"), 2)


@pytest.mark.parametrize("text", ["a\n" * 1025, "a" * 300])
def test_an_invalid_list_of_imex_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list"):
        imex.parse_nodes(text)
