"""What one node sends makes no report large, and hides nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.base import bounds
from nodevet.vet import formats

BASELINE = """\
nodevet: 1
expect:
  xid: {}
  machine_check: {}
  pcie_errors: {}
"""


def write(path: Path, **sections: Any) -> None:
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    path.write_text(json.dumps({"schema": 1, "probe": "", "sections": whole}))


def log(number: int, pad: int = 290) -> dict[str, Any]:
    """A kernel log of which each event is of a device and a kind of its own."""
    return {
        "complete": True,
        "events": [
            {
                "kind": ("xid", "aer", "sxid")[place % 3],
                "code": place,
                "bus_id": f"{place:04x}:00:00.0",
                "severity": "fatal",
                "text": f"line {place} " + "x" * pad,
            }
            for place in range(number)
        ],
    }


@pytest.fixture
def judged(nodevet: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The run of one node with such evidence, in every format."""

    def run(**sections: Any) -> dict[str, str]:
        (tmp_path / "site.yaml").write_text(BASELINE)
        write(tmp_path / "n1.json", **sections)
        outputs = {name: tmp_path / f"out.{name}" for name in formats.formats()}
        given = ["-b", tmp_path / "site.yaml"]
        given += [f"--format={name}:{path}" for name, path in outputs.items()]
        done = nodevet("check", "--evidence", tmp_path / "n1.json", "--max-age=none", *given)
        assert done.returncode in (0, 1, 3), done.stderr
        texts = {name: path.read_text() for name, path in outputs.items()}
        return {**texts, "code": str(done.returncode), "stderr": done.stderr}

    return run


def test_d1_a_kernel_log_with_too_many_events_is_unknown_with_the_reason(
    judged: Callable[..., dict[str, str]],
) -> None:
    told = judged(kernel_log=log(100_000, pad=0))
    assert told["code"] == "3", told["stderr"]
    assert "kernel log: the probe's answer is not valid" in told["table"]
    assert f"length <= {bounds.EVENTS.max_length}" in told["table"]
    assert max(map(len, told.values())) < 100_000


def test_d1_the_largest_kernel_log_gives_no_large_report(
    judged: Callable[..., dict[str, str]],
) -> None:
    told = judged(kernel_log=log(bounds.EVENTS.max_length or 0))
    assert told["code"] == "1", told["stderr"]
    sizes = {name: len(text) for name, text in told.items()}
    assert max(sizes.values()) < 2_000_000, sizes
    assert "more fail, not listed" in told["table"]
    for name in ("html", "markdown", "junit", "json", "jsonl", "diff"):
        assert "more fail, not listed" in told[name], name
    assert sizes["nagios"] < 8192 and sizes["prometheus"] < 30_000
