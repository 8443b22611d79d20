"""What a run came to: from its journal, in every format, and never better than it is."""

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from modelled_nodes import THP

from nodevet.fix import formats as fix_formats
from nodevet.fleet.executor import WorkError

CommandRig = Any
GOOD = ("changed", "verified_after_reboot", "unchanged", "rolled_back", "pending")


def gone(name: str) -> Callable[..., None]:
    def fault(box: Any, call: str, when: str) -> None:
        if box.name == name:
            raise WorkError("unreachable", "connection refused")

    return fault


def in_doubt(rig: CommandRig, *, nagios: int = 2) -> None:
    """In every format, and by every exit code."""
    for form in fix_formats.formats():
        said = rig.report(form)
        assert said.code == (nagios if form == "nagios" else 3), (form, said)
        words = {"nagios": "CRITICAL", "prometheus": "exit_code 3.0", "junit": "<error"}
        told = words.get(form, "unknown")
        run_is = '"unknown":"no end of' in said.out.replace('": "', '":"')
        assert told in said.out or told.upper() in said.out or run_is, (form, said.out)


def test_r2_the_final_report_agrees_with_the_journal(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2", "n3")
    d.w.boxes["n2"].refused["/etc/tmpfiles.d/nodevet-pages.conf"] = "No space left on device"
    d.w.boxes["n3"].holder = "bob"
    done = d.apply("--format", "json", max_fail=5)
    assert done.code == 1, done
    said = d.report()
    assert (said.code, said.out) == (1, done.out)
    assert d.outcomes() == {"n1": "changed", "n2": "failed_and_rolled_back", "n3": "refused"}
    (step,) = json.loads(done.out)["hosts"][0]["steps"]
    assert [ran["ok"] for ran in step["ran"]] == [True] * 4 and step["before"] != step["after"]
    for form in fix_formats.formats():
        name = (
            "result"
            if form == "table"
            else f"result{fix_formats.endings()[form]}".removesuffix(fix_formats.endings()[form])
        )
        assert d.report(form).out == (d.run / f"{name}{fix_formats.endings()[form]}").read_text()
    back = d.rollback("--format", "json")
    assert (back.code, back.out) == (0, d.report().out)


def test_r2_the_result_files_are_not_believed(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    d.apply()
    told = d.report("table")
    for path in d.run.glob("result.*"):
        path.write_text("forged")
    assert d.report("table") == told and told.code == 0


def test_r2_a_killed_rollback_leaves_its_nodes_unknown(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    begun = d.lines
    assert d.rollback().code == 0
    whole = (d.run / "journal.jsonl").read_bytes()
    for lines in range(begun + 1, whole.count(b"\n")):
        (d.run / "journal.jsonl").write_bytes(whole)
        d.cut(lines)
        in_doubt(d)
        assert "nodevet rollback" in d.report("table").out
    (d.run / "journal.jsonl").write_bytes(whole)
    assert d.report().code == 0


def test_r2_a_killed_apply_leaves_its_nodes_unknown(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    for lines in range(d.lines - 1, 0, -1):
        d.cut(lines)
        in_doubt(d)
        assert "apply --resume" in d.report("table").out
    assert d.outcomes() == {"n1": "not_attempted", "n2": "not_attempted"}


def test_r2_a_node_that_a_rollback_could_not_reach_is_unknown(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    d.w.executor.fault = gone("n2")
    said = d.rollback()
    assert said.code == 3, said
    in_doubt(d)
    assert d.outcomes() == {"n1": "rolled_back", "n2": "unknown"}
    assert "connection refused" in d.report("table").out


@pytest.mark.parametrize("way", ["gone", "locked"])
def test_r12_a_node_of_unknown_outcome_stays_unknown_until_it_is_visited(
    rig: Callable[..., CommandRig], way: str
) -> None:
    """A refused or unreachable node is no better off than before."""
    d = rig("n1")
    assert d.apply().code == 0
    lines = (d.run / "journal.jsonl").read_bytes().splitlines()
    d.cut(next(number for number, line in enumerate(lines, 1) if b'"action-begin"' in line))
    in_doubt(d)
    if way == "gone":
        d.w.executor.fault = gone("n1")
    else:
        d.w.boxes["n1"].holder = "bob"
    assert d.rollback().code == 3
    in_doubt(d)
    d.w.executor.fault = gone("nobody")
    d.w.boxes["n1"].holder = ""
    assert d.rollback().code == 0
    assert d.report().code == 0 and d.outcomes() == {"n1": "rolled_back"}


def test_r2_a_report_of_a_rollback_lists_its_steps(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    d.apply()
    for form in fix_formats.formats():
        if form not in ("nagios", "prometheus"):
            said = d.rollback("--format", form) if form == "table" else d.report(form)
            assert "pages" in said.out and "never" in said.out, (form, said.out)
            assert "/etc/tmpfiles.d/nodevet-pages.conf" in said.out, (form, said.out)


def test_r6_a_node_that_apply_never_reached_is_reported(rig: Callable[..., CommandRig]) -> None:
    """Killed before n2 began, and the inventory at hand does not name it."""
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0
    lines = (d.run / "journal.jsonl").read_bytes().splitlines()
    d.cut(next(number for number, line in enumerate(lines) if b'"n2"' in line))
    reach = d.run / "reach.json"
    told = json.loads(reach.read_text())
    told["hosts"] = [host for host in told["hosts"] if host["name"] != "n2"]
    reach.write_text(json.dumps(told))
    d.reached.clear()
    said = d.rollback()
    assert said.code == 0, said
    assert "not attempted" in said.out and "KeyError" not in said.out + said.err
    assert d.outcomes() == {"n1": "rolled_back", "n2": "unchanged"}
    assert d.reached == {"n1"}
    for form in fix_formats.formats():
        assert "not attempted" in d.report(form).out or form in ("prometheus", "junit")


def test_r10_the_report_of_a_rollback_of_one_node_contains_every_node(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    said = d.rollback("--host", "n1")
    assert said.code == 0 and "n2" in said.out, said
    assert d.outcomes() == {"n1": "rolled_back", "n2": "changed"}
    for form in fix_formats.formats():
        assert "n2" in d.report(form).out, form
    assert d.rollback("--host", "n2").code == 0
    assert d.outcomes() == {"n1": "rolled_back", "n2": "rolled_back"}


def test_r10_a_rollback_of_one_node_still_reports_another_unknown_node(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    d.w.executor.fault = gone("n2")
    assert d.rollback("--host", "n2").code == 3
    d.w.executor.fault = gone("nobody")
    assert d.rollback("--host", "n1").code == 3
    in_doubt(d)
    assert d.outcomes() == {"n1": "rolled_back", "n2": "unknown"}


def test_r11_a_resumed_run_says_that_it_was_rolled_back(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    assert d.rollback().code == 0
    d.reached.clear()
    said = d.resume()
    assert said.code == 1, said
    assert "canary failed" not in said.out and "ROLLED BACK  n[1-2]" in said.out
    assert "by `nodevet rollback`" in said.out and not d.reached
    assert d.outcomes() == {"n1": "rolled_back", "n2": "rolled_back"}
    for form in fix_formats.formats():
        assert d.report(form).code == 1, form


def test_r11_a_resumed_run_continues_with_the_nodes_that_were_not_rolled_back(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0
    lines = (d.run / "journal.jsonl").read_bytes().splitlines()
    d.cut(next(number for number, line in enumerate(lines) if b'"n2"' in line))
    d.w.boxes["n2"].__init__("n2")  # as it was before it was begun
    assert d.rollback("--host", "n1").code == 0
    said = d.resume("--canary", "1", "--override")
    assert said.code == 1, said
    assert d.outcomes() == {"n1": "rolled_back", "n2": "changed"}


def test_r11_a_rollback_keeps_a_unit_that_a_newer_run_needs(rig: Callable[..., CommandRig]) -> None:
    """The same text of the same unit: what is there says nothing of whose it is."""
    d = rig("n1")
    box, unit = d.w.boxes["n1"], "nodevet-pages.service"
    before = box.everything()
    older, d.run = d.run, d.run.with_name("newer")
    assert d("apply", d.plan(), "--run", older, "-b", "b").code == 0
    thp = next(iter(box.kernel))
    box.kernel[thp] = "always"  # something set it back: the file and its unit stay as they are
    wanted = box.everything()
    assert d.apply().code == 0
    newest = d.run
    d.run = older
    said = d.rollback()
    assert said.code == 1 and "is also of run newer" in said.out, said
    assert box.units[unit]["enabled"] == "enabled" and box.kernel[thp] == "never"
    assert f"/etc/systemd/system/{unit}" in box.files
    d.run = newest
    assert d.rollback().code == 0
    assert box.everything() == wanted
    d.run = older
    assert d.rollback().code in (0, 1)
    files, _kernel, units, _ = box.everything()
    assert (files, units) == (before[0], before[2])


def test_r11_runs_are_ordered_by_time_and_an_older_run_owns_nothing(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    older, d.run = d.run, d.run.with_name("a-newer")
    assert d("apply", d.plan(), "--run", older, "-b", "b").code == 0
    box = d.w.boxes["n1"]
    wanted = box.everything()
    box.kernel[next(iter(box.kernel))] = "always"
    assert d.apply().code == 0
    (d.run.parent / "stray").mkdir()
    (d.run.parent / "stray" / "journal.jsonl").write_text("what\n")
    said = d.rollback()
    assert said.code == 0 and "stray" in said.err, said
    assert box.files == wanted[0] and box.units == wanted[2]


def test_r2_a_rollback_that_did_nothing_shows_no_earlier_changes(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    assert "never → always" in d.rollback().out
    said = d.rollback()
    assert said.code == 0 and "nothing is left" in said.out, said
    assert " → always" not in said.out and "    now" not in said.out


def test_r11_runs_are_ordered_by_node_uptime_if_the_controllers_clock_went_back(
    rig: Callable[..., CommandRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1")
    box = d.w.boxes["n1"]
    read, uptimes = box.evidence, itertools.count(100.0, 10.0)

    def evidence() -> bytes:
        document = json.loads(read())
        document["sections"]["host"]["data"]["uptime_s"] = next(uptimes)
        return json.dumps(document).encode()

    box.evidence = evidence
    older, d.run = d.run, d.run.with_name("newer")
    with monkeypatch.context() as patch:
        patch.setattr("nodevet.fix.journal.journal.datetime", Tomorrow)
        assert d("apply", d.plan(), "--run", older, "-b", "b").code == 0
    box.kernel[THP] = "always"
    assert d.apply().code == 0
    newest, d.run = d.run, older
    said = d.rollback()
    assert said.code == 1 and "is also of run newer" in said.out, said
    d.run = newest
    said = d.rollback()
    assert said.code == 0 and "is also of run" not in said.out, said


class Tomorrow(datetime):
    """The clock of a controller that is a day ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(days=1)
