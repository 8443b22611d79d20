"""What `check` and `gate` share: from options to a bench, visits and a run."""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime
from pathlib import Path

from msgspec import structs

from nodevet import __version__, report
from nodevet.catalog import Catalog
from nodevet.cli import UserError
from nodevet.cli.output import Output
from nodevet.cli.speech import say, silence
from nodevet.fleet import Options
from nodevet.identity import Met, told_apart
from nodevet.model import Baseline, Host, HostReport, Run, Severity, new_run_id
from nodevet.report.parts.errors import ReportError
from nodevet.sweep import Bench, asks, missing


def open_project(project: Path) -> tuple[Catalog, list[Path]]:
    """The catalog with the project's checks and fixes, and the project's baseline folders."""
    folders = [folder for folder in [project / "baselines"] if folder.is_dir()]
    return Catalog([project / "checks"], [project / "fixes"]), folders


def open_bench(project: Path, names: Sequence[str]) -> Bench:
    """The baselines to judge by; one named baseline is for every host."""
    from nodevet.baseline import load

    catalog, folders = open_project(project)
    wanted = list(names) or candidates(folders)
    found = load(wanted, folders=folders, catalog=catalog)
    chosen = found[0] if len(names) == 1 else None
    return Bench(baselines=found, catalog=catalog, today=date.today(), chosen=chosen)


def candidates(folders: Sequence[Path]) -> list[str]:
    """The project's baselines, or the shipped ones where it has none."""
    from nodevet.baseline import available

    everything = available(folders)
    own = [name for name, path in everything if path.parent in folders]
    return own or [name for name, _ in everything]


def read_run(path: Path) -> Run:
    """A run from its json or jsonl report; what the reader must know goes to standard error.

    Raises UserError, naming the file.
    """
    try:
        run, notes = report.read(path.read_bytes())
    except ReportError as error:
        raise UserError(f"{path}: {error}") from error
    for note in notes:
        say(f"{path}: {note}")
    return run


def earlier_run(path: Path) -> Run | None:
    """The run to compare with; the first of a series has none, and that is said."""
    if path.exists():
        return read_run(path)
    say(f"{path}: no earlier run is there; nothing is marked as new")
    return None


@contextmanager
def _progress(total: int, *, wanted: bool) -> Iterator[Callable[[HostReport], None]]:
    """A bar on standard error, where that is a terminal."""
    if not wanted or not sys.stderr.isatty() or total == 1:
        yield lambda host: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("vetting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    shown = _while_written(bar.start)

    def advance(host: HostReport) -> None:
        nonlocal shown
        shown = shown and _while_written(lambda: bar.advance(task))

    try:
        yield advance
    finally:
        _while_written(bar.stop)


def _while_written(draw: Callable[[], object]) -> bool:
    """Draw on standard error; False, and never again, where that is gone."""
    try:
        draw()
    except OSError:
        silence(sys.stderr)
        return False
    return True


def carry_out(
    hosts: Sequence[Host],
    reports: Generator[HostReport],
    bench: Bench,
    output: Output,
    fail_on: Severity,
    *,
    replayed: bool = False,
) -> Run:
    """Take in every host report, streaming it where asked; Ctrl-C ends with what there is.

    `replayed`: they are of saved evidence.
    """
    started, clock = datetime.now().astimezone(), time.monotonic()
    run_id = new_run_id(started)
    done: dict[str, HostReport] = {}
    met = Met()
    interrupted = False

    def result() -> Run:
        order = {host.name: place for place, host in enumerate(hosts)}
        return Run(
            id=run_id,
            nodevet=__version__,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            fail_on=fail_on,
            interrupted=interrupted,
            replayed=replayed,
            baselines=_hashes(bench.baselines, done.values()),
            hosts=tuple(sorted(done.values(), key=lambda host: order[host.host])),
        )

    with output.streams() as streams:
        if streams:
            from nodevet.report import jsonl

            streams.emit(jsonl.head(result(), hosts=[host.name for host in hosts]))

        def take(*hosts: HostReport) -> None:
            for host in hosts:
                if done.get(host.host) == host:
                    continue
                done[host.host] = host
                if streams:
                    streams.emit(jsonl.line(host))

        try:
            with (
                _progress(len(hosts), wanted=not streams.at_terminal) as advance,
                closing(reports),
            ):
                for host in reports:
                    take(*met.meet(host))
                    advance(host)
        except KeyboardInterrupt:
            interrupted = True
        take(*told_apart(done.values()), *missing(hosts, list(done.values())))
        if streams:
            streams.emit(jsonl.tail(result()))
    return result()


def _hashes(baselines: Iterable[Baseline], done: Iterable[HostReport]) -> dict[str, str]:
    used = {host.baseline for host in done}
    return {baseline.name: baseline.sha256 for baseline in baselines if baseline.name in used}


def fleet_options(
    *,
    parallel: int,
    connect_timeout: float,
    deadline: float,
    ssh_config: Path | None,
    known_hosts: Path | None,
    accept_new: bool,
    sudo: bool,
    bench: Bench | None = None,
) -> Options:
    """The shared `reach` options as the fleet takes them; `bench`: what else is to be read.

    Raises AskError.
    """
    return Options(
        parallel=parallel,
        connect_timeout=connect_timeout,
        deadline=deadline,
        ssh_config=ssh_config,
        known_hosts=known_hosts,
        host_keys="accept-new" if accept_new else "strict",
        sudo=sudo,
        asks=asks(bench) if bench else {},
    )


def inventory(
    targets: Sequence[str],
    inventories: Sequence[str],
    limit: Sequence[str],
    *,
    expect_hostname: bool = True,
) -> tuple[Host, ...]:
    """The hosts of the command line. Raises UserError where it names none."""
    from nodevet.inventory import read

    if not targets and not inventories:
        raise UserError("no hosts: name them (gpu[001-128], @local), or give an inventory with -i")
    hosts = read(targets, inventories=inventories, limit=limit)
    return hosts if expect_hostname else any_hostname(hosts)


def any_hostname(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """The hosts, whatever host names the nodes themselves have."""
    return tuple(structs.replace(host, expect_hostname=False) for host in hosts)
