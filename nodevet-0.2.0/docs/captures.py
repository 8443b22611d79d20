"""Writes docs/captures.md: real machines as they were captured, and what nodevet says of each.

.venv/bin/python docs/captures.py           # write it, if the captures are beside the repository

Each capture is read by the payload that runs on nodes, as tests/rigs/captured_machines.py says,
which takes root. It is judged by the shipped baseline that fits, and by every other check that
needs no value of the site, as far as the capture tells of what they ask.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from nodevet.baseline import available, choose, load, params_of
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence
from nodevet.model import Baseline, Expectation, Finding, Host, Verdict
from nodevet.vet.findings.words import difference

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rigs"))

from captured_machines import FOLDER, Captured, left_out
from captured_machines import captured as read_captures

REPO = Path(__file__).parents[1]
PAGE = REPO / "docs" / "captures.md"
LEFT_OUT = frozenset(
    {
        # they would judge the machine on which the page is written
        *("clock_skew", "time_sync", "container_runtime", "cuda_libraries", "dkms", "secure_boot"),
        "device_nodes",  # no capture has device files
        *("gds", "gdrcopy", "bar1"),  # who asks for them wants them there
    }
)
LONGEST = 200  # characters of a line
HEAD = """\
# Real machines

Outputs and trees of real machines, read by the probe as those of a live node and judged: by the
shipped baseline that fits, else by `generic`, and by every other check that needs no value of the
site. Where all that a check could say depends on such a value, the page gives one: 400 Gb/s and no
link that went down for the ports of H100 nodes, 12 NVLinks for A100, no packet that EC2 held back,
512 bytes of MaxReadReq and no ACS redirection. What could not be read of a capture, since it
holds a part of a machine only, is unknown; what does not apply to it is not counted. Some files
were put together for tests of other programs, with faults in them.
"""
KINDS = {
    "nvidia-smi-xml": "`nvidia-smi -q -x`, as NVML would answer it on a made-up host",
    "nvidia-smi-text": "`nvidia-smi -q` and `nvidia-smi nvlink -s`",
    "copyleft/nvidia-smi-text": "An excerpt of `nvidia-smi -q`",
    "nvlink": "`nvidia-smi nvlink --status`",
    "sysfs": "Trees of /sys and /proc",
    "copyleft/sysfs": "More trees of /sys and /proc",
    "node-bundle": "What nvidia-bug-report.sh gathered: files, `lspci`, `nvidia-smi`, kernel logs",
    "dmesg": "Kernel logs, as /dev/kmsg has them",
    "smart": "Health logs of drives, printed by `smartctl`",
    "dcgmi": "Kept results of `dcgmi diag -j`",
    "ib": "/sys/class/infiniband, and what `ibstatus` printed of it",
    "net": "`ethtool -S`",
    "lspci": "`lspci`, as the PCI bus of a node",
    "copyleft/lspci": "More devices by `lspci -vvxxxx`",
    "topo": "NCCL's topologies, as the PCI bus of a node",
    "disk": "/proc/1/mountinfo",
}


class CapturedNode(NamedTuple):
    """One capture, and what was found: the baseline's name and its findings."""

    name: str
    baseline: str
    findings: tuple[Finding, ...]
    evidence: Evidence

    def told(self, verdict: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is verdict]


def captured(folder: Path = FOLDER, names: str = "*") -> Iterator[CapturedNode]:
    """Every capture of a node that the probe can read, judged; `names`: of these."""
    catalog = Catalog()
    baselines = load([name for name, _ in available([])], catalog=catalog)
    for each in read_captures(folder, names):
        yield _judged(each, baselines, catalog)


def _judged(read: Captured, baselines: tuple[Baseline, ...], catalog: Catalog) -> CapturedNode:
    chosen = choose(baselines, read.evidence, Host(name=read.name))
    if isinstance(chosen, str):
        chosen = next(one for one in baselines if one.name == "generic")
    own = [wish for wish in chosen.expectations if wish.check not in read.params]
    asked = {wish.check for wish in own}
    more = (
        _expectation(catalog, check, read.params.get(check, {}))
        for check in catalog.ids
        if check not in asked
    )
    wishes = tuple(
        wish
        for wish in (*own, *filter(None, more))
        if wish.check not in LEFT_OUT and (wish.check in read.checks or not read.checks)
    )
    whole = Baseline(name=chosen.name, path=chosen.path, expectations=wishes)
    found = judge(read.evidence, whole, catalog, host=read.name, today=date.min)
    return CapturedNode(read.name, chosen.name, found, read.evidence)


def _expectation(catalog: Catalog, check: str, fields: Mapping[str, Any]) -> Expectation | None:
    params = params_of(catalog.check(check), fields)
    if params is None:
        return None
    return Expectation(
        check=check, params=params, severity=catalog.check(check).severity, origin=""
    )


def page(nodes: list[CapturedNode], others: list[tuple[str, str]]) -> str:
    lines = [HEAD, f"{len(nodes)} captures.", ""]
    for kind, title in KINDS.items():
        lines += [f"## {title}", ""]
        lines += _table([node for node in nodes if _kind(node.name) == kind], kind)
    lines += ["## Not of a node", "", "| file | why it is not read |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {why} |" for name, why in others), ""])


def _kind(name: str) -> str:
    """The longest of KINDS that a name begins with."""
    return max((kind for kind in KINDS if name.startswith(f"{kind}/")), key=len)


def _table(nodes: list[CapturedNode], kind: str) -> Iterator[str]:
    """A row for each capture, and below what fails."""
    verdicts = (Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN)
    yield from ("| capture | baseline | ok | fail | unknown |", "|---|---|--:|--:|--:|")
    for node in nodes:
        counts = Counter(finding.verdict for finding in node.findings)
        told = " | ".join(str(counts[verdict] or "") for verdict in verdicts)
        yield f"| {node.name.removeprefix(f'{kind}/')} | {node.baseline} | {told} |"
    yield ""
    for node in nodes:
        if node.told(Verdict.FAIL):
            yield from (f"{node.name.removeprefix(f'{kind}/')}:", "")
            yield from (*(f"- `{line}`" for line in failures(node)), "")


def failures(node: CapturedNode) -> Iterator[str]:
    """What fails, the subjects of which the same is said together."""
    labels: dict[tuple[str, str], list[str]] = {}
    for finding in node.told(Verdict.FAIL):
        told = ", ".join(filter(None, difference(finding)))
        labels.setdefault((finding.check, told), []).append(finding.subject.label)
    for (check, told), subjects in labels.items():
        line = f"{' '.join(filter(None, [check, ', '.join(subjects)]))}: {told}"
        yield line if len(line) <= LONGEST else line[: LONGEST - 2].rpartition(" ")[0] + " …"


def main() -> int:
    if not FOLDER.is_dir():
        sys.stderr.write(f"no captures at {FOLDER}: the page stays as it is\n")
        return 1
    PAGE.write_text(page(list(captured()), list(left_out())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
