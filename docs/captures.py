"""Writes docs/captures.md: real machines as they were captured, and what nodevet says of each.

.venv/bin/python docs/captures.py           # write it, if the captures are beside the repository

Each capture is read by the real probe: an `nvidia-smi -q -x` through the simulated NVML on a
made-up host with its GPUs, a tree of /sys and /proc where it lies. It is judged by the shipped
baseline that fits, and by every other check that needs no value of the site.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nodevet.baseline import available, choose, load, params_of
from nodevet.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.judge import judge
from nodevet.model import Baseline, Expectation, Finding, Host, Verdict
from nodevet.report.parts.words import difference
from nodevet_sim import nvidia_smi_xml
from nodevet_sim.captured import read as read_tree
from nodevet_sim.library import build, environment
from nodevet_sim.tree import write as write_tree

REPO = Path(__file__).parents[1]
FOLDER = REPO / ".." / "shared" / "captures"
PAGE = REPO / "docs" / "captures.md"
XML = "nvidia-smi-xml/*.xml"
TREES = ("sysfs/**/*.tar.*", "sysfs/*.ttar", "copyleft/sysfs/**/*.tar.*", "node-bundle/*/root")
LEFT_OUT = frozenset(
    {
        # they would judge the machine on which the page is written
        *("clock_skew", "time_sync", "container_runtime", "cuda_libraries", "dkms", "secure_boot"),
        "device_nodes",  # no capture has device files
        *("gds", "gdrcopy"),  # who asks for them wants them there
    }
)
LONGEST = 200  # characters of a line
HEAD = """\
# Real machines

Outputs and trees of real machines, read by the real probe and judged: by the shipped baseline that
fits, else by `generic`. What could not be read of a capture, since it holds a part of a machine
only, is unknown, and what does not apply to it is left out. `docs/captures.py` writes this page.
"""


class CapturedNode(NamedTuple):
    """One capture, and what was found: the baseline's name and its findings."""

    name: str
    baseline: str
    findings: tuple[Finding, ...]

    def told(self, verdict: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is verdict]


def captured(folder: Path = FOLDER) -> Iterator[CapturedNode]:
    """Every capture of a machine that the probe can read, judged."""
    catalog = Catalog()
    baselines = load([name for name, _ in available([])], catalog=catalog)
    with TemporaryDirectory() as scratch:
        library = build(Path(scratch, "nvml"))
        for number, path in enumerate(sorted(folder.glob(XML))):
            yield _judged(path, _of_xml(path, Path(scratch, f"x{number}"), library), baselines)
        for number, path in enumerate(sorted(p for each in TREES for p in folder.glob(each))):
            yield _judged(path, _of_tree(path, Path(scratch, f"t{number}")), baselines)


def _of_xml(path: Path, root: Path, library: Path) -> Evidence:
    node = nvidia_smi_xml.read(path)
    write_tree(node.machine(), root)
    state = root.with_suffix(".state")
    state.write_text(node.state(), encoding="utf-8")
    return _probed(root, environment(library, state))


def _of_tree(path: Path, root: Path) -> Evidence:
    found = read_tree(path)
    for name, content in found.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    for name, target in found.links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(target)
    return _probed(root, {})


def _probed(root: Path, variables: dict[str, str]) -> Evidence:
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", "probe", "--root", str(root)],
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
    )
    return decode(done.stdout)


def _judged(path: Path, evidence: Evidence, baselines: tuple[Baseline, ...]) -> CapturedNode:
    name = str(path.relative_to(FOLDER)).removesuffix("/root")
    chosen = choose(baselines, evidence, Host(name=name))
    if isinstance(chosen, str):
        chosen = next(one for one in baselines if one.name == "generic")
    catalog = Catalog()
    asked = {wish.check for wish in chosen.expectations}
    more = tuple(
        Expectation(check=check, params=params, severity=catalog.check(check).severity, origin="")
        for check in catalog.ids
        if check not in asked and (params := params_of(catalog.check(check), {})) is not None
    )
    wishes = tuple(wish for wish in (*chosen.expectations, *more) if wish.check not in LEFT_OUT)
    whole = Baseline(name=chosen.name, path=chosen.path, expectations=wishes)
    found = judge(evidence, whole, catalog, host=name, today=date.min)
    return CapturedNode(name=name, baseline=chosen.name, findings=found)


def page(nodes: list[CapturedNode]) -> str:
    lines = [HEAD, f"{len(nodes)} machines.", ""]
    for node in nodes:
        counts = Counter(finding.verdict for finding in node.findings)
        told = ", ".join(
            f"{counts[verdict]} {verdict.value}"
            for verdict in (Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN)
            if counts[verdict]
        )
        lines += [f"## {node.name}", "", f"Judged by `{node.baseline}`: {told}.", ""]
        failed = dict.fromkeys(map(_line, node.told(Verdict.FAIL)))
        lines += [*(f"- {line}" for line in failed), *([""] if failed else [])]
    return "\n".join(lines)


def _line(finding: Finding) -> str:
    label = f" {finding.subject.label}" if finding.subject.label else ""
    told = ", ".join(filter(None, difference(finding)))
    return f"`{f'{finding.check}{label}: {told}'[:LONGEST]}`"


def main() -> int:
    if not FOLDER.is_dir():
        sys.stderr.write(f"no captures at {FOLDER}: the page stays as it is\n")
        return 1
    nodes = list(captured())
    PAGE.write_text(page(nodes), encoding="utf-8")
    sys.stderr.write(json.dumps({node.name: len(node.told(Verdict.FAIL)) for node in nodes}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
