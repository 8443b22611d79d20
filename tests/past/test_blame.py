"""`nodevet blame`: what changed on the hosts that began to fail, and on no others."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import five_nights
import pytest
from recorded import document, ended, report, run, unreachable

from nodevet.checking.catalog import Catalog
from nodevet.past.blame import Blame, Change, find_changes, separating_changes, shared_paths
from nodevet.past.sheets.blame import path_text
from nodevet.past.use.blame import blame
from nodevet.store import open_store
from nodevet.store.records.model import FixHost, FixProof, RecordedFixRun

Past = Callable[..., subprocess.CompletedProcess[str]]
TUNED = Change("installed.packages[tuned].found[tuned].version", '"2.23"', '"2.24"')


def blamed(url: str, check: str, hosts: set[str] | None = None) -> Blame:
    def refuse(killed: object, some: object) -> None:
        raise AssertionError((killed, some))

    return blame(url, check, hosts, Catalog(), killed=refuse)


# --- the comparison ---


def sections(**data: object) -> dict[str, bytes]:
    return {
        name: json.dumps({"status": "ok", "data": value}).encode() for name, value in data.items()
    }


def test_values_are_reported_by_place() -> None:
    before = sections(
        host={"kernel": "6.1", "names": ["a"]},
        installed={
            "packages": [{"name": "tuned", "version": "1"}, {"name": "gone", "version": "1"}]
        },
        gpu={"gpus": [{"bus_id": "1", "mode": True}, {"bus_id": "2", "mode": True}]},
    )
    after = sections(
        host={"kernel": "6.2", "names": ["a", "b"]},
        installed={"packages": [{"name": "tuned", "version": "2"}]},
        gpu={"gpus": [{"bus_id": "2", "mode": True}, {"bus_id": "1", "mode": False}]},
    )
    assert find_changes(before, after) == {
        Change("host.kernel", '"6.1"', '"6.2"'),
        Change("host.names", '["a"]', '["a","b"]'),
        Change("installed.packages[tuned].version", '"1"', '"2"'),
        Change("installed.packages[gone].name", '"gone"', ""),
        Change("installed.packages[gone].version", '"1"', ""),
        Change("gpu.gpus[].mode", "true", "false"),
    }
    assert find_changes(before, after, ["host.kernel"]) == {Change("host.kernel", '"6.1"', '"6.2"')}
    assert find_changes(before, before) == frozenset()


def test_a_section_that_is_no_longer_read_is_a_change() -> None:
    gone = {"gpu": json.dumps({"status": "error", "why": "no driver"}).encode()}
    found = find_changes(sections(gpu={"driver": "580"}), gone)
    assert found == {Change("gpu.driver", '"580"', ""), Change("gpu (status)", "", '"error"')}


def test_a_change_that_only_37_of_1000_hosts_got_is_separating() -> None:
    def uptime(number: int) -> Change:
        return Change("host.uptime_s", str(number), str(number + 86_400))

    noise = Change("kernel.threads", "1", "2")
    drifted = {f"g{n}": frozenset({TUNED, uptime(n), noise}) for n in range(37)}
    others = [frozenset({uptime(1000 + n), *([noise] if n % 2 else [])}) for n in range(963)]
    assert shared_paths(drifted) == {TUNED.path, "host.uptime_s", "kernel.threads"}
    lines = separating_changes(drifted, others, reads=())
    assert [(line.path, len(line.drifted), line.others) for line in lines] == [
        (TUNED.path, 37, 0),
        ("kernel.threads", 37, 481),
    ]
    assert (lines[0].before, lines[0].after) == (TUNED.before, TUNED.after)


def test_a_change_of_a_field_that_the_check_reads_is_marked_as_its_own() -> None:
    mode = Change("gpu.gpus[].persistence_mode", "true", "false")
    (line,) = separating_changes(
        {"g1": frozenset({mode})}, [], reads=["gpu.gpus[].persistence_mode"]
    )
    assert line.own


def test_without_a_separating_change_nothing_is_blamed() -> None:
    drifted = {f"g{n}": frozenset({TUNED}) for n in range(5)}
    assert separating_changes(drifted, [frozenset({TUNED})] * 20, reads=()) == []
    assert (
        shared_paths({"a": frozenset({TUNED}), "b": frozenset(), "c": frozenset()}) == frozenset()
    )


def test_one_value_of_several_is_reported() -> None:
    older = Change(TUNED.path, '"2.20"', '"2.24"')
    drifted = {"a": frozenset({TUNED}), "b": frozenset({older}), "c": frozenset({older})}
    elsewhere = [frozenset({Change(TUNED.path, '"2.20"', '"2.23"')})] * 6
    (line,) = separating_changes(drifted, elsewhere, reads=())
    assert (line.before, line.after, len(line.drifted), line.others) == ("", '"2.24"', 3, 0)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (TUNED.path, "package tuned"),
        ("host.cmdline", "kernel command line"),
        ("gpu.gpus[].x", "gpu.gpus[].x"),
    ],
)
def test_paths_in_words(path: str, said: str) -> None:
    assert path_text(path) == said


# --- of the five nights ---


def test_an_upgrade_that_only_the_failing_hosts_got_is_blamed(url: str) -> None:
    found = blamed(url, "persistence_mode")
    (drift,) = found.groups
    assert found.now
    assert drift.hosts == ("gpu010", "gpu011", "gpu012")
    assert (drift.good.run, drift.bad.run) == (five_nights.run_id(3), five_nights.run_id(4))
    assert drift.others == 15
    assert drift.clear is not None
    assert path_text(drift.clear.path) == "package nvidia-compute-utils-580"
    (tuned,) = [line for line in drift.changes if path_text(line.path) == "package tuned"]
    assert (len(tuned.drifted), tuned.others) == (3, 3)


def test_a_fault_that_moved_is_two_drifts(url: str) -> None:
    found = blamed(url, "row_remapping")
    assert not found.now
    assert [(drift.hosts, drift.bad.run) for drift in found.groups] == [
        (("gpu007",), five_nights.run_id(3)),
        (("gpu003",), five_nights.run_id(2)),
    ]


def test_hosts_that_always_failed_are_not_compared(url: str) -> None:
    found = blamed(url, "cpu_governor")
    assert not found.groups
    assert [look.host for look in found.always] == ["a100-02"]


def test_blame_reports_the_upgrade_on_the_command_line(nodevet: Past) -> None:
    done = nodevet("blame", "persistence_mode")
    assert done.returncode == 0
    assert "3 hosts since" in done.stdout
    assert (
        "All 3 and none of the other 15 got package nvidia-compute-utils-580 580.126.09-1 in "
        "between." in " ".join(done.stdout.split())
    )
    some = json.loads(nodevet("blame", "persistence_mode", "gpu011", "--format", "json").stdout)
    assert [look["host"] for look in some["groups"][0]["looks"]] == ["gpu011"]
    assert "| all 3 |" in nodevet("blame", "persistence_mode", "--format", "markdown").stdout
    assert "did not fail on any host" in nodevet("blame", "nvlink").stderr
    assert "did you mean persistence_mode?" in nodevet("blame", "persistance_mode").stderr


# --- nights that are not alike ---

KERNELS = ("6.1.0-28", "6.1.0-31", "6.1.0-31")
HOSTILE = "quiet \x1b]0;owned\x07 | <script>alert(1)</script> \u202e[#x].y"


def looked_at(night: int, host: str, *, tuned: str, cmdline: str) -> bytes:
    package = {
        "name": "tuned",
        "found": [{"name": "tuned", "version": tuned, "state": "installed"}],
    }
    return document(
        host={"hostname": host, "kernel": KERNELS[night], "cmdline": cmdline},
        installed={"packages": [package]},
    )


@pytest.fixture
def uneven(tmp_path: Path) -> str:
    """Eight hosts. All get another kernel before night 1; g6 and g7 get another tuned and command
    line before night 2, and fail; g7 could not be reached in night 1."""
    url = f"sqlite:///{tmp_path / 'uneven.sqlite'}"
    hosts = [f"g{number}" for number in range(8)]
    with open_store(url) as store:
        for night in range(3):
            begun = run(night, len(hosts))
            recorder = store.begin(begun)
            for host in hosts:
                bad = night == 2 and host in ("g6", "g7")
                if (host, night) == ("g7", 1):
                    recorder.take(unreachable(host), None)
                    continue
                read = looked_at(
                    night,
                    host,
                    tuned="2.24" if bad else "2.23",
                    cmdline=HOSTILE if bad else "quiet",
                )
                said = {"cpu_governor": "fail" if bad else "ok"}
                recorder.take(report(host, said, night=night), read)
            recorder.finish(ended(begun))
            assert recorder.broken is None
    return url


def test_changes_that_every_host_got_while_one_was_away_are_not_blamed(uneven: str) -> None:
    found = blamed(uneven, "cpu_governor")
    assert [(each.hosts, each.good.run[:8], each.others) for each in found.groups] == [
        (("g6",), "20261102", 6),
        (("g7",), "20261101", 6),
    ]
    for each in found.groups:
        assert {line.path for line in each.changes} == {TUNED.path, "host.cmdline"}
        assert all(each.is_sole(line) for line in each.changes)


def test_text_of_a_node_is_shown_as_text(uneven: str, nodevet: Past) -> None:
    shown = {
        form: nodevet("blame", "cpu_governor", "--store", uneven, "--format", form).stdout
        for form in ("table", "markdown", "html", "json")
    }
    for form, text in shown.items():
        assert "owned" in text, form
        assert not {"\x1b", "\x07"} & set(text), form
        assert form == "json" or "\u202e" not in text, form
    assert "<script>alert" not in shown["html"]
    lines = [line for line in shown["markdown"].splitlines() if "owned" in line]
    columns = {line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}
    assert columns == {6}


def test_nights_in_which_the_check_was_not_judged_were_not_good(tmp_path: Path) -> None:
    """g0 and g1 fail since the check came; g2 passes it in both nights, and then fails; g3 passes
    it; g4 is never judged by it."""
    url = f"sqlite:///{tmp_path / 'h.sqlite'}"
    said: dict[str, tuple[str, ...]] = {
        "g0": ("", "", "fail"),
        "g1": ("", "not_applicable", "fail"),
        "g2": ("ok", "ok", "fail"),
        "g3": ("ok", "ok", "ok"),
        "g4": ("", "", ""),
    }
    with open_store(url) as store:
        for night in range(3):
            begun = run(night, len(said))
            recorder = store.begin(begun)
            for host, nights in said.items():
                read = looked_at(night, host, tuned="2.24" if night == 2 else "2.23", cmdline="")
                findings = {"cpu_governor": nights[night]} if nights[night] else {}
                recorder.take(report(host, {"numa": "ok", **findings}, night=night), read)
            recorder.finish(ended(begun))
    found = blamed(url, "cpu_governor")
    assert [(each.hosts, each.others) for each in found.groups] == [(("g2",), 1)]
    assert [look.host for look in found.always] == ["g0", "g1"]
    assert found.unread == ()


def test_e19_a_finding_that_came_back_after_a_fix_began_at_its_first_visit(tmp_path: Path) -> None:
    """g0 fails from the second night on; a fix in between that proved it over is no good night."""
    url = f"sqlite:///{tmp_path / 'h.sqlite'}"
    said = {"g0": ("ok", "fail", "fail"), "g1": ("ok", "ok", "ok")}
    fixed = RecordedFixRun(
        id="1",
        kind="apply",
        plan="5f1c00aa",
        digest="",
        author="ann",
        folder="/srv/runs/1",
        started="2026-11-02T12:00:00+00:00",
        seconds=1.0,
        hosts=(FixHost(host="g0", outcome="changed"),),
    )
    proof = FixProof(
        run="1",
        plan="5f1c00aa",
        host="g0",
        check="cpu_governor",
        baseline="site",
        asked=fixed.started,
        at=fixed.started,
        keys=("cpu_governor/node",),
    )
    with open_store(url) as store:
        for night in range(3):
            begun = run(night, len(said))
            recorder = store.begin(begun)
            for host, nights in said.items():
                read = looked_at(night, host, tuned=f"2.{night}", cmdline="")
                recorder.take(report(host, {"cpu_governor": nights[night]}, night=night), read)
            recorder.finish(ended(begun))
            if night == 1:
                store.record_fix_run(fixed, (), (proof,))
        assert [span.after_plan for span in store.spans()] == ["", "5f1c00aa"]
    (group,) = blamed(url, "cpu_governor").groups
    assert (group.hosts, group.good.run, group.bad.run) == (("g0",), run(0).id, run(1).id)
