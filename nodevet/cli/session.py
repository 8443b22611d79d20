"""What `check` and `gate` share: from options to a bench, visits and written reports."""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from nodevet import __version__, report
from nodevet.catalog import Catalog
from nodevet.cli import UserError
from nodevet.fleet import Options
from nodevet.model import Baseline, Host, HostReport, Run, Severity
from nodevet.report.errors import ReportError
from nodevet.sweep import Bench, missing


def open_project(project: Path) -> tuple[Catalog, list[Path]]:
    """The catalog with the project's checks, and the project's baseline folders."""
    folders = [folder for folder in [project / "baselines"] if folder.is_dir()]
    return Catalog([project / "checks"]), folders


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


class Sink(msgspec.Struct, frozen=True):
    """One `--format NAME[:FILE]`; without a file it goes to standard output."""

    format: str
    file: Path | None

    @property
    def streamed(self) -> bool:
        """Whether `carry_out` writes it, host by host, while the run goes on."""
        return self.format == "jsonl"


def parse_sinks(words: Sequence[str]) -> tuple[Sink, ...]:
    """The reports to write. Raises click.UsageError; files are tried out before the run."""
    sinks = []
    for word in words or ["table"]:
        name, _, path = word.partition(":")
        report.module(name)
        sinks.append(Sink(name, Path(path) if path else None))
    if sum(sink.file is None for sink in sinks) > 1:
        raise click.UsageError("two formats for standard output; give one a file: html:FILE")
    files = [sink.file for sink in sinks if sink.file]
    for file in files:
        if files.count(file) > 1:
            raise click.UsageError(f"two formats for {file}")
        if not file.parent.is_dir():
            raise click.UsageError(f"{file}: the folder {file.parent} does not exist")
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise click.UsageError(f"{file}: cannot be written")
    return tuple(sinks)


def write(sinks: Iterable[Sink], run: Run, previous: Run | None = None) -> None:
    """Render the run into every sink but the streamed ones; files appear whole or not at all."""
    for sink in sinks:
        text = report.render(sink.format, run, **_options(sink, previous))
        if sink.file is None:
            click.echo(text, nl=not text.endswith("\n"))
        else:
            part = sink.file.with_name(f".{sink.file.name}.part")
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
            part.replace(sink.file)


def _options(sink: Sink, previous: Run | None) -> dict[str, Any]:
    """What this sink's format can be told about where it goes and what was before."""
    known: dict[str, Any] = {"previous": previous}
    if sink.file is None:
        known["colour"] = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return {key: value for key, value in known.items() if key in report.options(sink.format)}


def code_of(run: Run, sinks: Iterable[Sink]) -> int:
    """The exit code: as a Nagios plug-in's where `nagios` is what standard output gets."""
    if any(sink.format == "nagios" and sink.file is None for sink in sinks):
        from nodevet.report import nagios

        return nagios.status(run)
    return run.exit_code


def read_run(path: Path) -> Run:
    """A run from its json or jsonl report; what the reader must know goes to standard error.

    Raises UserError, naming the file.
    """
    try:
        run, notes = report.read(path.read_bytes())
    except ReportError as error:
        raise UserError(f"{path}: {error}") from error
    for note in notes:
        click.echo(f"nodevet: {path}: {note}", err=True)
    return run


@contextmanager
def _progress(total: int) -> Iterator[Callable[[HostReport], None]]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty() or total == 1:
        yield lambda host: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("vetting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda host: bar.advance(task)


def carry_out(
    hosts: Sequence[Host],
    reports: Generator[HostReport],
    bench: Bench,
    sinks: Sequence[Sink],
    fail_on: Severity,
) -> Run:
    """Take in every host report, streaming it where asked; Ctrl-C ends with what there is."""
    started, clock = datetime.now().astimezone(), time.monotonic()
    done: list[HostReport] = []
    interrupted = False

    def result() -> Run:
        order = {host.name: place for place, host in enumerate(hosts)}
        return Run(
            nodevet=__version__,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            fail_on=fail_on,
            interrupted=interrupted,
            baselines=_hashes(bench.baselines, done),
            hosts=tuple(sorted(done, key=lambda host: order[host.host])),
        )

    with (
        _streams(sinks, [host.name for host in hosts], result) as stream,
        _progress(len(hosts)) as advance,
    ):
        try:
            with closing(reports):
                for host in reports:
                    done.append(host)
                    stream(host)
                    advance(host)
        except KeyboardInterrupt:
            interrupted = True
        for host in list(missing(hosts, done)):
            done.append(host)
            stream(host)
    return result()


def _hashes(baselines: Iterable[Baseline], done: Iterable[HostReport]) -> dict[str, str]:
    used = {host.baseline for host in done}
    return {baseline.name: baseline.sha256 for baseline in baselines if baseline.name in used}


@contextmanager
def _streams(
    sinks: Iterable[Sink], names: Sequence[str], result: Callable[[], Run]
) -> Iterator[Callable[[HostReport], None]]:
    """Writes each host to the jsonl sinks as it finishes, between a head and a tail."""
    files: list[IO[str]] = []
    streamed = [sink for sink in sinks if sink.streamed]
    try:
        for sink in streamed:
            files.append(sink.file.open("w", encoding="utf-8") if sink.file else sys.stdout)
        if files:
            from nodevet.report import jsonl

            _emit(files, jsonl.head(result(), hosts=names))
            yield lambda host: _emit(files, jsonl.line(host))
            _emit(files, jsonl.tail(result()))
        else:
            yield lambda host: None
    finally:
        for file in files:
            if file is not sys.stdout:
                with suppress(OSError):
                    file.close()


def _emit(files: Iterable[IO[str]], text: str) -> None:
    for file in files:
        file.write(text if text.endswith("\n") else text + "\n")
        file.flush()


def fleet_options(
    *,
    parallel: int,
    connect_timeout: float,
    deadline: float,
    ssh_config: Path | None,
    known_hosts: Path | None,
    accept_new: bool,
    sudo: bool,
) -> Options:
    """The shared `reach` options as the fleet takes them."""
    return Options(
        parallel=parallel,
        connect_timeout=connect_timeout,
        deadline=deadline,
        ssh_config=ssh_config,
        known_hosts=known_hosts,
        host_keys="accept-new" if accept_new else "strict",
        sudo=sudo,
    )


def inventory(
    targets: Sequence[str], inventories: Sequence[str], limit: Sequence[str]
) -> tuple[Host, ...]:
    """The hosts of the command line. Raises UserError where it names none."""
    from nodevet.inventory import read

    if not targets and not inventories:
        raise UserError("no hosts: name them (gpu[001-128], @local), or give an inventory with -i")
    return read(targets, inventories=inventories, limit=limit)
