"""Visits that other processes judge: the same reports, none lost, whatever happens to a process."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from nodevet.fleet import Options, Visit
from nodevet.model import Host, Severity, Status
from nodevet.model.run import Run
from nodevet.vet.use import judges, vet
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import NOT_REACHED
from nodevet.vet.use.last_look import LastLook
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.saved import keep

Vetted = Callable[..., Visit]
NAMES = tuple(f"n{number}" for number in range(12))


class Heard(VetListener):
    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.warnings: list[str] = []

    def advanced(self, host: str) -> None:
        self.hosts.append(host)

    def warned(self, text: str) -> None:
        self.warnings.append(text)


def judged(
    visits: Iterator[Visit],
    context: VetContext,
    monkeypatch: pytest.MonkeyPatch,
    *,
    processes: int = 2,
    save: Any = None,
    listener: VetListener | None = None,
) -> Run:
    monkeypatch.setattr(vet, "visit_beside", lambda *_: visits)
    hosts = [Host(name=name) for name in NAMES]
    run = vet.vet(
        hosts,
        context,
        Options(),
        fail_on=Severity.WARNING,
        processes=processes,
        save=save,
        listener=listener,
    )
    assert not multiprocessing.active_children()
    return run


def answers(vetted: Vetted) -> Iterator[Visit]:
    """One is unreachable, one does not answer with evidence, one has no name; all others are ok."""
    yield Visit("n0", Status.UNREACHABLE, "no answer on port 22 within 10 s")
    yield Visit("n1", Status.VETTED, evidence=b"{}")
    yield vetted("n2", hostname="")
    yield from (vetted(name, machine_id=name) for name in NAMES[3:])


def test_the_reports_are_those_of_this_process(
    context: VetContext, vetted: Vetted, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    runs = [
        judged(answers(vetted), context, monkeypatch, processes=number, listener=heard)
        for number in (2, 0)
    ]
    assert list(runs[0].hosts) == list(runs[1].hosts) and runs[0].exit_code == runs[1].exit_code
    assert [host.status for host in runs[0].hosts[:3]] == [
        Status.UNREACHABLE,
        Status.PROBE_FAILED,
        Status.VETTED,
    ]
    assert sorted(heard.hosts) == sorted(NAMES * 2)


def test_the_last_look_is_read_before_the_new_evidence_replaces_it(
    context: VetContext, vetted: Vetted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = []
    for processes in (2, 0):
        folder = tmp_path / f"looks-{processes}"
        for name in NAMES[:6]:
            keep(vetted(name, boot_id="before"), Host(name=name), folder)
        since = structs.replace(context, since=LastLook([folder]))
        visits = (vetted(name, boot_id="now") for name in NAMES)

        def save(visit: Visit, host: Host, folder: Path = folder) -> None:
            keep(visit, host, folder)

        judged(visits, since, monkeypatch, processes=processes, save=save)
        assert since.since is not None
        notes.append(sorted(since.since.not_compared()))
        assert len(list(folder.glob("*.json"))) == len(NAMES)
    assert notes[0] == notes[1] and any("n[6-11]" in note for note in notes[0]), notes


def test_an_interrupt_keeps_what_was_visited(
    context: VetContext, vetted: Vetted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def visits() -> Iterator[Visit]:
        yield from (vetted(name, machine_id=name) for name in NAMES[:7])
        raise KeyboardInterrupt

    saved: dict[str, Status] = {}

    def save(visit: Visit, host: Host) -> None:
        saved[host.name] = visit.status

    run = judged(visits(), context, monkeypatch, save=save)
    ends = [(host.status, host.why) for host in run.hosts]
    assert run.interrupted
    assert ends == [(Status.VETTED, "")] * 7 + [(Status.INTERRUPTED, NOT_REACHED)] * 5
    assert list(saved.values()).count(Status.INTERRUPTED) == 5 and len(saved) == len(NAMES)


@pytest.mark.parametrize("always", [True, False])
def test_a_killed_process_costs_at_most_its_host(
    context: VetContext,
    vetted: Vetted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    always: bool,
) -> None:
    judge_visit = judges.judge_visit

    def deadly(visit: Visit, *rest: Any) -> Any:
        if visit.host == "n5" and (always or not (tmp_path / "once").exists()):
            (tmp_path / "once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return judge_visit(visit, *rest)

    monkeypatch.setattr(judges, "judge_visit", deadly)
    heard = Heard()
    visits = (vetted(name, machine_id=name) for name in NAMES)
    run = judged(visits, context, monkeypatch, listener=heard)
    ends = {host.host: (host.status, host.why) for host in run.hosts}
    lost = ends.pop("n5")
    assert lost == ((Status.PROBE_FAILED, judges.LOST) if always else (Status.VETTED, ""))
    assert set(ends.values()) == {(Status.VETTED, "")} and len(ends) == len(NAMES) - 1
    assert "which judged n5, was killed by SIGKILL: another one judges it" in heard.warnings[0]
    assert len(heard.warnings) == (2 if always else 1)


def test_an_error_of_a_rule_ends_the_run_as_in_this_process(
    context: VetContext, vetted: Vetted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of nodevet")

    monkeypatch.setattr(judges, "judge_visit", broken)
    with pytest.raises(RuntimeError, match="a fault of nodevet"):
        judged((vetted(name) for name in NAMES), context, monkeypatch)
    assert not multiprocessing.active_children()


def test_few_hosts_and_few_cores_need_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, hosts, processes in ((2, 9999, 0), (4, 199, 0), (4, 200, 2), (64, 9999, 16)):
        monkeypatch.setattr(judges, "cores", lambda cores=cores: cores)
        assert judges.judges_worth(hosts) == processes
    for cores, hosts, processes in ((1, 9999, 0), (2, 199, 0), (2, 200, 2), (64, 9999, 16)):
        monkeypatch.setattr(judges, "cores", lambda cores=cores: cores)
        assert judges.judges_of_saved(hosts) == processes


def test_many_saved_visits_are_judged_by_all_cores(
    context: VetContext, vetted: Vetted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [Host(name=name) for name in NAMES]
    visits = list(answers(vetted))
    runs = []
    for processes in (2, 0):
        monkeypatch.setattr(vet, "judges_of_saved", lambda hosts, number=processes: number)
        runs.append(vet.vet_saved(hosts, visits, context, fail_on=Severity.WARNING))
    assert list(runs[0].hosts) == list(runs[1].hosts) and runs[0].replayed
    assert not multiprocessing.active_children()


def test_a_visit_that_is_judged_and_not_yet_saved_is_not_lost_by_an_interrupt(
    context: VetContext, vetted: Vetted, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: dict[str, Status] = {}
    visits = (vetted(name, machine_id=name) for name in NAMES)

    def save(visit: Visit, host: Host) -> None:
        if len(saved) == 3 and Status.INTERRUPTED not in saved.values():
            saved[host.name] = Status.INTERRUPTED  # as if it had been interrupted before it wrote
            raise KeyboardInterrupt
        saved[host.name] = visit.status

    run = judged(visits, context, monkeypatch, save=save)
    assert run.interrupted and saved.keys() == set(NAMES)
    unsaved = {name for name, status in saved.items() if status is Status.INTERRUPTED}
    reported = {host.host for host in run.hosts if host.status is Status.INTERRUPTED}
    assert unsaved and unsaved == reported
