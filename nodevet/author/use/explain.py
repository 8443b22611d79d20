"""Explain: find the check, the baselines or the host that is to be explained."""

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
from nodevet.baseline.library import is_path
from nodevet.checking import identity
from nodevet.checking.catalog import Catalog
from nodevet.checking.identity import in_words, judge_hostname
from nodevet.document.kinds import DocumentKind, kind_of
from nodevet.evidence.document import decode
from nodevet.fleet import Options, visit
from nodevet.model import Host, HostReport, Run, Severity
from nodevet.sheet.text import count
from nodevet.vet.use.context import candidates, open_context
from nodevet.vet.use.earlier import DAY, read_run
from nodevet.vet.use.saved import read_saved
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import vet_saved

PAGES = {**identity.PAGES, age.CHECK: age.PAGE, CHOICE: OF_CHOICE}
"""Of what every run looks at, with no baseline asking for it."""


class Fitting(Struct, frozen=True, kw_only=True):
    """The baseline that fits a host, and what is odd about the host; empty if nothing is."""

    resolved: Resolved
    doubt: str = ""


def resolve(
    names: Sequence[str], folders: Sequence[Path], catalog: Catalog
) -> tuple[Resolved, ...]:
    """These baselines, or all that hosts are chosen from, with the line of every value."""
    asked = list(names) or candidates(folders)
    return load_resolved(asked, folders=folders, catalog=catalog)


def is_check(word: str, catalog: Catalog) -> bool:
    """Whether a word names a check, or what every run looks at."""
    return word in catalog.ids or word in PAGES


def is_baseline(word: str, folders: Sequence[Path]) -> bool:
    """Whether a word names a baseline, or a file that may be one."""
    return is_path(word) or word in dict(available(folders))


def saved_host(
    path: Path, host: str, project: Project | Path, names: Sequence[str]
) -> tuple[Run, str]:
    """A run that holds this host: a saved one, or one made now of saved evidence, whatever its
    age; and what the reader must know of it. Raises UserError, and what reading raises."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    if kind_of(path) is DocumentKind.EVIDENCE:
        replay = read_saved([path], Targets(limit=(host,)))
        context = open_context(project, names)
        found = vet_saved(replay.hosts, replay.visits, context, fail_on=Severity.WARNING)
        return found, ""
    if names:
        raise UserError(f"-b: {path} was judged when it was saved; judge its evidence again")
    run, notes = read_run(path, most=DAY)
    return run, "; ".join(notes)


def host_of(run: Run, host: str, place: object) -> HostReport:
    """The host of a run. Raises UserError."""
    found = {summary.host: at for at, summary in enumerate(run.summaries)}
    if host not in found:
        near = did_you_mean(host, found, f"it has {count(len(found), 'host')}")
        raise UserError(f"{place}: no host is named {brief(host)}; {near}")
    return run.hosts[found[host]]


def not_known(word: str, catalog: Catalog) -> UserError:
    """What to say of a word that is no check, if nothing says where a host would be."""
    near = did_you_mean(word, (*catalog.ids, *PAGES), "`nodevet list checks` names them")
    way = f"for a host: nodevet explain {brief(word)} --from last.json, or -i INVENTORY"
    return UserError(f"no check or baseline is named {brief(word)!r}; {near}; {way}")


def stand_ins(
    names: Sequence[str], folders: Sequence[Path], catalog: Catalog
) -> tuple[Resolved, ...]:
    """The shipped baselines that a run would fall back on; none if baselines were named."""
    known = candidates(folders)
    others = () if names else [name for name, _ in available([]) if name not in known]
    return load_resolved(others, catalog=catalog)


def fitting(
    resolved: Sequence[Resolved],
    host: Host,
    options: Options,
    others: Callable[[], Sequence[Resolved]] = tuple,
) -> Fitting:
    """The baseline for a host, from what it is: it is visited. Raises UserError.

    `others`: those that may stand in if it is certain that none is for it.
    """
    (one,) = visit([host], options)
    if one.evidence is None:
        raise UserError(f"{host.name}: {one.status.value}: {one.why}; name its baseline with -b")
    evidence = decode(one.evidence)
    named = judge_hostname(host, evidence)
    doubt = f"{host.name}: {in_words(named)}; {named.advice}" if named else ""
    known = [each.baseline for each in resolved]
    chosen = choose(known, evidence, host)
    if isinstance(chosen, str):
        told = "\n".join(filter(None, (doubt, f"{host.name}: {chosen}")))
        resolved = others() if none_fits(known, evidence, host) else ()
        chosen = choose([each.baseline for each in resolved], evidence, host)
        if isinstance(chosen, str):
            raise UserError(told)
        doubt = f"{told}; until then judged by the shipped {chosen.name}"
    found = next(each for each in resolved if each.baseline is chosen)
    return Fitting(resolved=found, doubt=doubt)
