"""Evidence and runs that lie on a disk: what of them is judged, and how old they are."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from nodevet.age import AHEAD, WEEK, seconds_of, words
from nodevet.cli import UserError, session
from nodevet.cli.speech import say
from nodevet.fleet import Visit
from nodevet.model import Host, Run, Status
from nodevet.printable import brief
from nodevet.report.parts.text import nodeset

DAY, PREVIOUS = 86400.0, WEEK
"""Seconds: a run that is rendered again is of today; one that is compared with, of last week."""
SHOWN = 40  # columns of a time
NOT_SAVED = "no evidence of it is saved there"


def replayed(
    paths: Sequence[Path],
    targets: Sequence[str],
    inventories: Sequence[str],
    limit: Sequence[str],
) -> tuple[tuple[Host, ...], tuple[Visit, ...]]:
    """The hosts to judge and their saved visits: all, or those that are named.

    What is saved of others is left out and told; a host of which nothing is saved has no
    evidence. Raises UserError for two files of one host.
    """
    from nodevet.sweep import replay

    kept = list(replay(paths))
    visits = {visit.host: visit for visit, _ in kept}
    if len(visits) < len(kept):
        raise UserError("--evidence: two files are of the same host")
    if not (targets or inventories or limit):
        return tuple(host for _, host in kept), tuple(visits.values())
    hosts = session.inventory(targets, inventories, limit)
    if left := _strangers(visits, hosts, inventories):
        where = "not in the inventory" if inventories else "not among the hosts that are named"
        say(f"--evidence: left out, since {where}: {nodeset(left)}")
    absent = (Visit(host.name, Status.PROBE_FAILED, NOT_SAVED) for host in hosts)
    return hosts, tuple(visits.get(visit.host, visit) for visit in absent)


def tell_strangers(folder: Path, hosts: Sequence[Host], inventories: Sequence[str]) -> None:
    """Say which evidence in the folder of --save is of hosts that this run does not visit."""
    names = [unquote(path.stem) for path in folder.glob("*.json")]
    if left := _strangers(names, hosts, inventories):
        where = "not in the inventory" if inventories else "not of this run"
        say(
            f"--save {folder}: there is evidence of hosts that are {where}: {nodeset(left)}; "
            "`nodevet check --evidence` judges it, too: remove what is of no use"
        )


def _strangers(
    names: Iterable[str], hosts: Sequence[Host], inventories: Sequence[str]
) -> list[str]:
    """The names that are neither among the hosts nor anywhere in the inventories."""
    left = sorted(set(names) - {host.name for host in hosts})
    if left and inventories:
        known = {host.name for host in session.inventory((), inventories, ())}
        left = [name for name in left if name not in known]
    return left


def tell_age(path: Path, run: Run, *, most: float) -> None:
    """Say how old a saved run is, where that is more than `most` seconds or cannot be."""
    started, now = seconds_of(run.started), time.time()
    unknown = started is None or started > now + AHEAD
    if started is None or unknown or now - started > most:
        age = "of unknown age" if unknown or started is None else f"{words(now - started)} old"
        at = brief(run.started, SHOWN) or "an unknown time"
        say(f"{path}: the run is {age}: it was started at {at}")
