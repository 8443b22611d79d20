"""Explain: find the check, the baselines or the host to explain."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from nodevet.base import age
from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean
from nodevet.base.project import Project
from nodevet.baseline import (
    Resolved,
    available,
    choose,
    load_resolved,
    none_fits,
)
from nodevet.baseline.choose import CHECK as CHOICE
from nodevet.baseline.choose import PAGE as OF_CHOICE
from nodevet.baseline.library import is_file_name
from nodevet.checking import identity
from nodevet.checking.catalog import Catalog
from nodevet.checking.identity import in_words, judge_hostname
from nodevet.document.kinds import DocumentKind, kind_of
from nodevet.evidence.document import decode
from nodevet.fleet import Options, visit
from nodevet.model import Host, HostReport, Severity
from nodevet.model.run import Run
from nodevet.sheet.text import count
from nodevet.vet.use.context import candidates, open_context
from nodevet.vet.use.earlier import DAY, read_run
from nodevet.vet.use.saved import read_saved
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import vet_saved

PAGES = {**identity.PAGES, age.CHECK: age.PAGE, CHOICE: OF_CHOICE}
"""The pages of what every run checks, whatever the baseline."""


class Fitting(Struct, frozen=True, kw_only=True):
    """The baseline that fits a host, and a doubt about the host, or ""."""

    resolved: Resolved
    doubt: str = ""


def resolve(
    names: Sequence[str], folders: Sequence[Path], catalog: Catalog
) -> tuple[Resolved, ...]:
    """These baselines, or all that a run chooses from, with the line of every value."""
    baselines = list(names) or candidates(folders)
    return load_resolved(baselines, folders=folders, catalog=catalog)


def is_check(word: str, catalog: Catalog) -> bool:
    """Whether a word names a check, or a thing that every run checks."""
    return word in catalog.ids or word in PAGES


def is_baseline(word: str, folders: Sequence[Path]) -> bool:
    """Whether a word names a baseline, or a file that may be one."""
    return is_file_name(word) or word in dict(available(folders))


def saved_host(
    path: Path, host: str, project: Project | Path, names: Sequence[str]
) -> tuple[Run, str]:
    """A run with this host, saved or made now from saved evidence of any age; and notes for the
    reader. Raises UserError, and the errors of reading."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    if kind_of(path) is DocumentKind.EVIDENCE:
        replay = read_saved([path], Targets(limit=(host,)))
        context = open_context(project, names)
        return vet_saved(replay.hosts, replay.visits, context, fail_on=Severity.WARNING), ""
    if names:
        raise UserError(f"-b: {path} was judged when it was saved; judge its evidence again")
    run, notes = read_run(path, most=DAY)
    return run, "; ".join(notes)


def host_of(run: Run, host: str, place: object) -> HostReport:
    """The host of a run. Raises UserError."""
    places = {summary.host: at for at, summary in enumerate(run.summaries)}
    if host not in places:
        near = did_you_mean(host, places, f"it has {count(len(places), 'host')}")
        raise UserError(f"{place}: no host is named {brief(host)}; {near}")
    return run.hosts[places[host]]


def unknown_word(word: str, catalog: Catalog) -> UserError:
    """The error about a word that is not a check, if no option names a source of hosts."""
    near = did_you_mean(word, (*catalog.ids, *PAGES), "`nodevet list checks` names them.")
    other_way = f"For a host: nodevet explain {brief(word)} --from last.json, or -i INVENTORY"
    return UserError(f"no check or baseline is named {brief(word)!r}; {near} {other_way}")


def fallback_baselines(
    names: Sequence[str], folders: Sequence[Path], catalog: Catalog
) -> tuple[Resolved, ...]:
    """The shipped baselines to fall back on; none if the user named baselines."""
    known = candidates(folders)
    others = () if names else [name for name, _ in available([]) if name not in known]
    return load_resolved(others, catalog=catalog)


def fitting(
    resolved: Sequence[Resolved],
    host: Host,
    options: Options,
    fallbacks: Callable[[], Sequence[Resolved]] = tuple,
) -> Fitting:
    """Visit a host and choose its baseline. Raises UserError.

    `fallbacks`: baselines to use if it is certain that no other fits.
    """
    (result,) = visit([host], options)
    if result.evidence is None:
        raise UserError(
            f"{host.name}: {result.status.value}: {result.why}; name its baseline with -b"
        )
    evidence = decode(result.evidence)
    mismatch = judge_hostname(host, evidence)
    doubt = f"{host.name}: {in_words(mismatch)}; {mismatch.advice}" if mismatch else ""
    known = [item.baseline for item in resolved]
    chosen = choose(known, evidence, host)
    if isinstance(chosen, str):
        message = "\n".join(filter(None, (doubt, f"{host.name}: {chosen}")))
        resolved = fallbacks() if none_fits(known, evidence, host) else ()
        chosen = choose([item.baseline for item in resolved], evidence, host)
        if isinstance(chosen, str):
            raise UserError(message)
        doubt = f"{message}; until then judged by the shipped {chosen.name}"
    match = next(item for item in resolved if item.baseline is chosen)
    return Fitting(resolved=match, doubt=doubt)
