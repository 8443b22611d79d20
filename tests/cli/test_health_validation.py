"""A stand-in for NVIDIA Health Validation on simulated nodes; the real program cannot be had."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulated_fleet import SimulatedFleet
from tests.cli.conftest import Run

PLACE = "/usr/local/bin/health-validation"
BASELINE = "nodevet: 1\nexpect: {health_validation: INFO}\n"


@pytest.fixture
def stand_in(fleet: SimulatedFleet) -> Iterator[None]:
    """On gpu1 it passes, on gpu3 it is critical, and gpu2 has none."""
    for node, severity, code in (("gpu1", "PASS", 0), ("gpu3", "CRITICAL", 1)):
        script = f'echo \'{{"overall_severity": "{severity}"}}\'; exit {code}'
        text = f'#!/bin/sh\n[ "$*" = run ] || exit 2\n{script}'
        fleet.run_on(node, f"cat > {PLACE} <<'EOF'\n{text}\nEOF\nchmod +x {PLACE}")
    yield
    for node in ("gpu1", "gpu3"):
        fleet.run_on(node, f"rm {PLACE}")


def test_a_check_judges_the_verdict_of_health_validation(
    nodevet: Run, reach: list[str], stand_in: None, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(BASELINE)
    words = ["check", "gpu[1-3]", *reach, "-b", tmp_path / "site.yaml", "--store", "none"]
    done = nodevet(*words, "--all", "--format", "diff")
    assert done.returncode == 1, done
    assert "health-validation is not on this node" in done.stdout
    assert "CRITICAL" in done.stdout and "nodevet finds every GPU usable" in done.stdout
    done = nodevet(*words, "--limit", "gpu1")
    assert (done.returncode, done.stderr) == (0, ""), done
