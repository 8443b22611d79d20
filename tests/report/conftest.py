"""Runs to render: each case is built here and named by its golden files."""

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from nodevet.fixing.model import Risk
from nodevet.fixing.result import Approval, HostResult, Outcome, Ran, Result, StepResult
from nodevet.model import (
    Finding,
    HostReport,
    NeededAction,
    Severity,
    Status,
    Subject,
    Verdict,
    compare,
    fail,
    not_applicable,
    unknown,
)
from nodevet.model.run import Run
from nodevet.resource import Resource, RunCommand, State

GOLDEN = Path(__file__).parent / "golden"
WANTED = {
    "gpu_count": (8, "", Severity.CRITICAL),
    "driver_version": ("550.90.07", "", Severity.CRITICAL),
    "pcie_link": ("x16", "", Severity.CRITICAL),
    "power_limit": (700, "W", Severity.CRITICAL),
    "persistence_mode": (True, "", Severity.WARNING),
    "ecc_errors": (0, "", Severity.CRITICAL),
    "cpu_governor": ("performance", "", Severity.WARNING),
    "numa_locality": (0, "", Severity.WARNING),
}
NEEDS = {
    "pcie_link": NeededAction.REBOOT,
    "power_limit": NeededAction.LIVE_FIX,
    "persistence_mode": NeededAction.LIVE_FIX,
    "cpu_governor": NeededAction.LIVE_FIX,
    "ecc_errors": NeededAction.GPU_RESET,
}
PER_GPU = {"pcie_link", "power_limit", "persistence_mode", "ecc_errors", "numa_locality"}
BIDI = "\u202e"
SCRIPT = "<script>alert(1)</script>"
NASTY = (
    SCRIPT,
    "\x1b[31mH100\x1b[2J",
    f"H{BIDI}001\u2066x",
    "two\nlines\r\nWRONG forged gpu001",
    "a|b\\|c || `code` ``` ~~~",
    "nul\0byte",
    "lone\ud800surrogate\udcff",
    "\u2028</script><!--<script>\u2029",
    "@octocat #1 https://example.com/x [a](javascript:alert(1)) ![i](x) <img src=x onerror=x>",
    "&lt;b&gt; {{ 7*7 }} {% x %} \ufeff\u200b\x85\x9b31m",
    '\'; DROP "x" ]]> \ufffe \uffff \U000e0041',
    "漢字 é e\u0301 🖥",
)


def gpu(index: int, host: str = "") -> Subject:
    return Subject(
        kind="gpu",
        id=str(index),
        uuid=f"GPU-{host or 'node'}-{index:04x}",
        bus_id=f"0000:{0x19 + index * 16:02x}:00.0",
    )


def findings(host: str, *, gpus: int = 8, **actual: object) -> tuple[Finding, ...]:
    """All checks of a node that is as wanted, but for `actual`: check=value or check_GPU=value."""
    found = []
    for line, (check, (value, unit, severity)) in enumerate(WANTED.items(), 14):
        rest = {
            "check": check,
            "severity": severity,
            "origin": f"baselines/nvidia-h100-sxm.yaml:{line}",
            "unit": unit,
        }
        if check not in PER_GPU:
            now = actual.get(check, value)
            found.append(compare(Subject(), expected=value, actual=now, **rest))
            continue
        for index in range(gpus):
            now = actual.get(f"{check}_{index}", actual.get(check, value))
            subject = gpu(index, host)
            if isinstance(now, Finding):
                found.append(_stamped(now, subject, rest))
            else:
                found.append(compare(subject, expected=value, actual=now, **rest))
    found.append(
        not_applicable(
            check="mig_mode",
            why="the baseline asks for no MIG and the GPU has none",
            severity=Severity.INFO,
            origin="baselines/nvidia-datacenter.yaml:40",
        )
    )
    return tuple(_needing(finding) for finding in found)


def _needing(finding: Finding) -> Finding:
    """The finding as the judge leaves it: a failure says what it needs."""
    if finding.verdict is not Verdict.FAIL:
        return finding
    return replace(finding, action=NEEDS.get(finding.check, NeededAction.SITE))


def _stamped(finding: Finding, subject: Subject, rest: dict[str, object]) -> Finding:
    return replace(finding, subject=subject, **rest)


def vetted(host: str, found: tuple[Finding, ...] | None = None, **rest: object) -> HostReport:
    return HostReport(
        host=host,
        status=Status.VETTED,
        baseline="nvidia-h100-sxm",
        findings=findings(host) if found is None else found,
        machine_id="0f" * 16,
        boot_id="6c1e3f58-4e0c-4b8e-9d15-8d7f0a4a1c55",
        seconds=2.25,
        groups=("h100", "training"),
        **rest,
    )


def failed(host: str, status: Status, why: str, seconds: float = 10.0) -> HostReport:
    return HostReport(host=host, status=status, why=why, seconds=seconds, groups=("h100",))


def run_of(*hosts: HostReport, **rest: object) -> Run:
    given = {
        "id": "20260714T000005.000Z-1f3a9c2e",
        "nodevet": "0.1.0",
        "started": "2026-07-14T02:00:05+02:00",
        "seconds": 4.125,
        "baselines": {"nvidia-h100-sxm": "9f8e7d6c5b4a3928" * 4},
    }
    return Run(**{**given, **rest}, hosts=hosts)


def healthy() -> Run:
    names = ("gpu001", "gpu002")
    return run_of(*(vetted(name, findings(name, gpus=2)) for name in names))


def _mixed_host(number: int) -> HostReport:
    host = f"gpu{number:03d}"
    lost = unknown(why="NVML: GPU is lost", advice="drain the node and reset the GPU")
    narrow = fail(
        expected="x16",
        actual="x8",
        why="limited by root port 0000:39:01.0",
        advice="reseat the riser",
    )
    if number in (1, 2, 3, 4, 7):
        return vetted(host, findings(host, power_limit=500))
    if number == 13:
        return vetted(host, findings(host, pcie_link_4=narrow))
    if number in (17, 18):
        waiver = "until 2026-12-31 (ops-hw: riser on order)"
        waived = replace(narrow, verdict=Verdict.WAIVED, why="", advice="", waiver=waiver)
        return vetted(host, findings(host, pcie_link_0=waived))
    if number == 19:
        expired = replace(narrow, waiver="expired 2026-06-30 (ops-hw: riser on order)")
        return vetted(host, findings(host, pcie_link_0=expired, pcie_link_1=expired))
    if 31 <= number <= 62:
        return vetted(host, findings(host, cpu_governor="powersave"))
    if number == 44 + 56:
        return vetted(host, findings(host, ecc_errors_6=lost))
    if number in (120, 121):
        return failed(host, Status.UNREACHABLE, "connection refused")
    if number == 122:
        return failed(host, Status.TIMEOUT, "no answer within 30 s", 30.0)
    if number == 123:
        return failed(host, Status.PROBE_FAILED, "python3: command not found")
    if number == 124:
        return vetted(host, ())
    return vetted(host)


def mixed() -> Run:
    """The sweep that the architecture sketches, with every other way to fail."""
    return run_of(*(_mixed_host(number) for number in range(1, 129)))


def night_before() -> Run:
    """The sweep before `mixed`: some of its troubles are old, one GPU was lost then."""
    before = {1: {"power_limit": 500}, 2: {"power_limit": 450}, 60: {"ecc_errors_2": 3}}
    hosts = [
        vetted(f"gpu{n:03d}", findings(f"gpu{n:03d}", **before.get(n, {}))) for n in range(2, 129)
    ]
    return run_of(*hosts, vetted("old001"), started="2026-07-13T02:00:04+02:00")


def empty() -> Run:
    return run_of(seconds=0.0, baselines={})


def interrupted() -> Run:
    return run_of(
        vetted("gpu001", findings("gpu001", gpus=1)),
        failed("gpu002", Status.INTERRUPTED, "the run was ended", 0.0),
        failed("gpu003", Status.INTERRUPTED, "the run was ended", 0.0),
        interrupted=True,
        fail_on=Severity.CRITICAL,
    )


def one() -> Run:
    """One node, with mappings, lists, long values and a severity below fail_on."""
    modules = [f"module_{n:02d}" for n in range(30)]
    rest = {"origin": "baselines/site.yaml:7", "check": "site"}
    return run_of(
        vetted(
            "node-7.example",
            (
                fail(expected={"fast": 64}, actual={"fast": 56, "slow": 8}, **rest),
                fail(expected=modules, actual=[*modules[:20], *modules[21:]], **rest),
                fail(expected="8", actual=8, **rest),
                fail(why="the two sources disagree: NVML 8, PCI 7", **rest),
                fail(
                    Subject(kind="cpufreq", id="0-63"),
                    expected="performance",
                    actual="powersave",
                    severity=Severity.INFO,
                    **rest,
                ),
                Finding(
                    verdict=Verdict.UNKNOWN,
                    subject=Subject(kind="process", id="4711"),
                    why="/proc/4711: EACCES",
                    **rest,
                ),
                *findings("node-7.example", gpus=2),
            ),
        )
    )


def hostile() -> Run:
    """Every text that a node or an inventory can send is hostile."""
    hosts = []
    for nasty in NASTY:
        rest = {"check": "gpu_model", "origin": f"{nasty}:1"}
        subject = Subject(kind="gpu", id=nasty, uuid=nasty, bus_id=nasty)
        hosts.append(
            HostReport(
                host=nasty,
                status=Status.VETTED,
                baseline=nasty,
                machine_id=nasty,
                boot_id=nasty,
                groups=(nasty,),
                findings=(
                    fail(
                        subject,
                        expected=nasty,
                        actual=f"not {nasty}",
                        why=nasty,
                        unit=nasty,
                        advice=nasty,
                        waiver=f"expired {nasty}",
                        **rest,
                    ),
                    fail(
                        Subject(kind=nasty, id="1"),
                        expected={nasty: 1, "b": [nasty]},
                        actual=[nasty],
                        **rest,
                    ),
                    unknown(subject, why=nasty, check=nasty),
                ),
            )
        )
        hosts.append(failed(f"down {nasty}", Status.UNREACHABLE, nasty))
    return run_of(*hosts, nodevet="0.1.0", baselines={nasty: nasty for nasty in NASTY})


CASES: dict[str, Callable[[], Run]] = {
    "healthy": healthy,
    "mixed": mixed,
    "one": one,
    "empty": empty,
    "interrupted": interrupted,
    "hostile": hostile,
}


@pytest.fixture(scope="session")
def cases() -> dict[str, Run]:
    return {name: build() for name, build in CASES.items()}


def differs(path: Path, text: str) -> str:
    """Compares with a golden file; rewrites it when UPDATE_GOLDEN=1. Empty when alike."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    if not path.is_file():
        return f"{path} is missing; run with UPDATE_GOLDEN=1 and review it"
    kept = path.read_bytes().decode("utf-8").splitlines(keepends=True)
    diff = difflib.unified_diff(kept, text.splitlines(keepends=True), str(path), "rendered now")
    return "".join(diff)


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """`golden(name, text)` fails with a diff where the text is not that of golden/<name>."""

    def check(name: str, text: str) -> None:
        if changed := differs(GOLDEN / name, text):
            pytest.fail(f"UPDATE_GOLDEN=1 accepts this:\n{changed}", pytrace=False)

    return check


@pytest.fixture(scope="session")
def previous() -> Run:
    return night_before()


@pytest.fixture(scope="session")
def fixed() -> Result:
    """A run of fixes in which every text that a node, a plan or a person gives is hostile."""
    steps = tuple(
        StepResult(
            id="1",
            fix=nasty,
            subjects=(nasty,),
            expected=nasty,
            actual=f"not {nasty}",
            risk=Risk.LIVE,
            outcome=Outcome.CHANGED,
            why=nasty,
            before=(State(resource=Resource(kind=nasty, name=nasty), exists=True, value=nasty),),
            after=(State(resource=Resource(kind=nasty, name=nasty), exists=True, value="other"),),
            ran=(Ran(action=RunCommand(words=(nasty,)), ok=False, code=1, output=nasty),),
            verdicts={nasty: "ok"},
        )
        for nasty in NASTY
    )
    approval = Approval(who=NASTY[0], key=NASTY[0], file=NASTY[0])
    return Result(
        nodevet="0.1.0",
        plan=NASTY[0],
        digest="d" * 64,
        author=NASTY[0],
        approvals=(approval,),
        started="2026-07-14T02:00:05+02:00",
        seconds=61.5,
        stopped=NASTY[0],
        hosts=(
            *tuple(
                HostResult(host=nasty, outcome=Outcome.FAILED, why=nasty, steps=steps[:3])
                for nasty in NASTY
            ),
            HostResult(host="gpu001", outcome=Outcome.CHANGED, seconds=2.5, steps=steps[:1]),
        ),
    )


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The builders of this file, for tests that need another run."""
    return SimpleNamespace(
        failed=failed, findings=findings, gpu=gpu, nasty=NASTY, run_of=run_of, vetted=vetted
    )


@pytest.fixture(scope="session")
def fleet() -> Run:
    """2,000 hosts with 15 checks each."""
    names = [f"extra_{n}" for n in range(6)]
    hosts = []
    for number in range(1, 2001):
        host = f"gpu{number:04d}"
        if number % 97 == 0:
            hosts.append(failed(host, Status.UNREACHABLE, "connection refused"))
            continue
        actual: dict[str, object] = {}
        if number % 31 == 0:
            actual["power_limit"] = 500
        if number % 53 == 0:
            actual["pcie_link_3"] = fail(expected="x16", actual="x8", why=f"port 0000:{number:x}")
        more = tuple(
            compare(gpu(g, host), expected=1, actual=1, check=check, origin="baselines/x.yaml:1")
            for check in names
            for g in range(8)
        )
        hosts.append(vetted(host, findings(host, **actual) + more))
    return run_of(*hosts, seconds=212.5)
