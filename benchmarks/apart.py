"""Measures what the one process that visits, records and reports pays for a host: where it judges
the hosts itself, and where other processes judge them.

No host is visited: every answer is there at once, as of nodes with eight GPUs.
"""

import resource
from collections.abc import Generator, Sequence
from pathlib import Path

from contenders import BenchmarkError
from night import Nodes
from rejudge import documents, five_nights

from nodevet.fleet import Options, Visit
from nodevet.model import Host, Severity, Status
from nodevet.model.run import Run
from nodevet.store import open_store
from nodevet.vet.use import vet
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.recording import Recording

JUDGES = 2
Row = tuple[str, float, float]  # milliseconds of CPU for a host: of this process, of the others


def rows(folder: Path, hosts: int) -> list[Row]:
    """Of a run that is not recorded and of two nights; here, and with other processes."""
    context = open_context(folder, [str(five_nights.READ / "site-h100.yaml")])
    found = []
    for processes in (0, JUDGES):
        where = f"{processes} processes beside it" if processes else "itself"
        own, others = _measured(_night(hosts, 1), context, processes, None)
        found.append((f"judges {where}", own, others))
        with open_store(f"sqlite:///{folder / f'{processes}.sqlite'}") as store:
            for night, name in ((1, "recorded, first night"), (2, "recorded, nothing changed")):
                recording = Recording(store, VetListener(), series="bench")
                with recording:
                    answers = _night(hosts, night)
                    own, others = _measured(answers, context, processes, recording)
                found.append((f"judges {where}, {name}", own, others))
                if recording.broken or recording.run is None:
                    raise BenchmarkError(f"it was not recorded: {recording.broken}")
    return found


def _night(hosts: int, night: int) -> Sequence[Visit]:
    """The answers of all hosts; in the second night only readings and clocks differ."""
    nodes = Nodes(next(documents(1))[1])
    return [
        Visit(f"node{number:05d}", Status.VETTED, "", nodes.answer(number, night), 1.0)
        for number in range(hosts)
    ]


def _measured(
    answers: Sequence[Visit], context: VetContext, processes: int, recording: Recording | None
) -> tuple[float, float]:
    def visits(*_: object) -> Generator[Visit]:
        yield from answers

    vet.visit_beside = visits  # type: ignore[assignment]
    before = _cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN)
    run = vet.vet(
        [Host(name=one.host, expect_hostname=False) for one in answers],
        context,
        Options(),
        fail_on=Severity.WARNING,
        save=recording.keep if recording else None,
        listener=recording,
        processes=processes,
    )
    _prove(run, len(answers))
    after = _cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN)
    own, others = (
        (later - sooner) / len(answers) * 1000 for sooner, later in zip(before, after, strict=True)
    )
    return own, others


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _prove(run: Run, hosts: int) -> None:
    """Raises BenchmarkError if not every host was judged."""
    judged = sum(one.status is Status.VETTED and bool(one.findings) for one in run.summaries)
    if judged != hosts:
        raise BenchmarkError(f"{judged} of {hosts} hosts were judged")


def table(found: Sequence[Row]) -> str:
    lines = [f"| {name} | {own:.1f} ms | {others:.1f} ms |" for name, own, others in found]
    head = "| the process that visits and records | its CPU per host | of the others |"
    return "\n".join([head, "|---|---:|---:|", *lines])
