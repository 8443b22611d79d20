"""One host in full: everything that its findings say, once, and nothing that a node can forge."""

import pytest

from nodevet.author.host_sheet import host_blocks
from nodevet.base.printable import cells
from nodevet.model import (
    Finding,
    HostReport,
    Severity,
    Status,
    Subject,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)
from nodevet.model.run import Run
from nodevet.sheet.model import Sheet
from nodevet.sheet.terminal import render as drawn


def render(
    run: Run, host: HostReport, check: str = "", *, colour: bool = False, width: int | None = None
) -> str:
    sheet = Sheet(title="", kind="explain", blocks=tuple(host_blocks(run, host, check)))
    return drawn(sheet, colour=colour, width=width)


EVIL = "\x1b[2J\n\u202eFAIL <script>"


def gpu(number: int) -> Subject:
    return Subject(kind="gpu", id=str(number), uuid=f"GPU-{number}", bus_id=f"0000:1{number}:00.0")


def limit(number: int, **rest: object) -> Finding:
    given = {"expected": 700, "actual": 490, "unit": "W", "check": "power_limit", **rest}
    part = gpu(number)
    details = {"bus id": part.bus_id or "", "serial": f"165{number}"}  # the address is told once
    return fail(part, origin="site.yaml:4", details=details, **given)


FINDINGS = (
    ok(gpu(0), check="ecc_mode", actual=True, expected=True),
    unknown(check="xid", why="kernel log: denied", origin="site.yaml:9"),
    limit(0),
    limit(1),
    limit(2, actual=500),
    fail(check="cpu_governor", expected="performance", actual="powersave",
         severity=Severity.WARNING, advice="look at tuned"),
    Finding(verdict=Verdict.WAIVED, check="pcie_link", subject=gpu(3), expected="x16",
            actual="x8", waiver="until 2026-12-31 (ops: riser)"),
    not_applicable(check="mig_mode", why="the GPU has no MIG"),
)  # fmt: skip
HOST = HostReport(
    host="gpu1", status=Status.VETTED, baseline="site", findings=FINDINGS, groups=("rack1",)
)
RUN = Run(id="r1", nodevet="0", started="2026-11-22T05:00:00+00:00", seconds=1, hosts=(HOST,))


def test_all_findings_of_the_host_are_shown_worst_first() -> None:
    assert (
        render(RUN, HOST)
        == """\
gpu1  FAIL  4 fail, 1 unknown, 1 waived, 1 ok, 1 not applicable
  baseline  site
  groups    rack1
  read at   unknown
  run       r1, started 2026-11-22T05:00:00+00:00

power_limit  GPU 0-1: FAIL (critical)
  expected  700 W
  actual    490 W
  GPU 0     0000:10:00.0, GPU-0, serial 1650
  GPU 1     0000:11:00.0, GPU-1, serial 1651
  from      site.yaml:4

power_limit  GPU 2: FAIL (critical)
  expected  700 W
  actual    500 W
  GPU 2     0000:12:00.0, GPU-2, serial 1652
  from      site.yaml:4

cpu_governor: FAIL (warning)
  expected  performance
  actual    powersave
  advice    look at tuned

xid: UNKNOWN (critical)
  why   kernel log: denied
  from  site.yaml:9

pcie_link  GPU 3: WAIVED (critical)
  expected  x16
  actual    x8
  waiver    until 2026-12-31 (ops: riser)
  GPU 3     0000:13:00.0, GPU-3

OK   ecc_mode  on                  GPU 0
N/A  mig_mode  the GPU has no MIG
"""
    )


def test_a_stand_in_baseline_is_marked_as_provisional() -> None:
    none = unknown(check="baseline", why="none fits; until then judged by the shipped h100")
    host = HostReport(host="a", status=Status.VETTED, baseline="h100", findings=(none,))
    assert "\n  baseline  h100 (provisional)\n" in render(RUN, host)


def test_one_check_of_a_host() -> None:
    shown = render(RUN, HOST, check="xid")
    assert shown.startswith("xid: UNKNOWN") and "power_limit" not in shown
    assert render(RUN, HOST, check="swap") == "gpu1: no findings of the check swap\n"


def test_a_host_that_was_not_reached() -> None:
    gone = HostReport(host="gpu9", status=Status.TIMEOUT, why="timed out after 10 s")
    shown = render(RUN, gone)
    assert shown.startswith("gpu9  TIMED OUT\n  why      timed out after 10 s\n")
    assert "baseline" not in shown and shown.endswith("gpu9: no findings of any check\n")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_long_texts_are_wrapped_and_not_cut(width: int) -> None:
    words = " ".join(f"word{number}" for number in range(80))
    host = HostReport(host="a", status=Status.VETTED, findings=(fail(check="x", why=words),))
    shown = render(RUN, host, width=width)
    assert max(map(cells, shown.splitlines()[4:])) <= width
    assert set(words.split()) <= set(shown.split())


def test_text_of_a_node_is_inert() -> None:
    finding = fail(
        Subject(kind=EVIL, id=EVIL, uuid=EVIL), check=EVIL, expected=EVIL, actual=[EVIL],
        why=EVIL, advice=EVIL, origin=EVIL, waiver=EVIL, details={EVIL: EVIL}, last=EVIL,
        cause=EVIL,
    )  # fmt: skip
    host = HostReport(
        host=EVIL, status=Status.VETTED, why=EVIL, baseline=EVIL, findings=(finding, ok(why=EVIL)),
        machine_id=EVIL, boot_id=EVIL, arrived=EVIL, groups=(EVIL,),
    )  # fmt: skip
    shown = render(RUN, host)
    assert all(line.isprintable() for line in shown.splitlines())
    assert not any(line.startswith("FAIL <script>") for line in shown.splitlines())


def test_colour_changes_no_word() -> None:
    plainly, coloured = render(RUN, HOST), render(RUN, HOST, colour=True)
    for code in (0, 1, 2, 31, 33, 35):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plainly
