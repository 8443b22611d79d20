"""Read the break-fix records of hosts from the store."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.base.nodeset import expand
from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean
from nodevet.past.breakfix import BreakFix, break_fix
from nodevet.past.story import HostStory
from nodevet.past.use.story import find_host

if TYPE_CHECKING:
    from nodevet.store import Store


def find_break_fix(
    store: "Store",
    nodesets: Iterable[str],
    change: Callable[[HostStory], HostStory] = lambda story: story,
) -> BreakFix:
    """The records of the hosts in `nodesets`; without nodesets, of all hosts in the store. `change`
    returns the version of each story to write. Raises UserError for a host that is not in the
    store."""
    known = store.hosts()
    names = set(known)
    hosts = [host for nodeset in nodesets for host in expand(nodeset)] or known
    for host in hosts:
        if host not in names:
            hint = did_you_mean(host, known, "`nodevet history runs` shows what was recorded")
            raise UserError(f"{store.name}: no host {brief(host)!r} is known; {hint}")
    if not hosts:
        raise UserError(f"{store.name}: no host is recorded yet")
    return break_fix(change(find_host(store, host)) for host in dict.fromkeys(hosts))
