"""Programs that visit hosts instead of this machine: launchers, or a Dask pool. Data only; no I/O.

A launcher is an argv in front of nodevet-shard: `ssh bastion-eu`, `kubectl exec -i POD --`,
`srun -N1`. Its standard input and output are those of the remote program.
"""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePath

from nodevet.model import Host

LOCAL = "local"  # the launcher that starts the program on this machine
PROGRAM = "nodevet-shard"
DASK = "dask"  # any worker of a pool
OTHERS = "*"  # the site of every host in no other site
NOT_ELSEWHERE = (
    "nodevet makes changes only from this machine, never by a launcher or a Dask worker: the "
    "journal and the locks are here, and a task that runs again elsewhere would write twice. Run "
    "it "
    "where the hosts can be reached, or reach them by ProxyJump in ssh_config"
)
BATCH = ("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Launcher:
    """How to start nodevet-shard elsewhere. Paths are those of the other machine; None: ssh's own.

    The argv may end in the path of nodevet-shard; else its name is added. Raises ValueError.
    """

    name: str
    argv: tuple[str, ...] = ()  # empty: on this machine
    ssh_config: str | None = None
    known_hosts: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name[:80]!r} is not a valid name of a launcher (eu, dc1-a)")
        if any(not word or "\0" in word for word in self.argv):
            raise ValueError(f"launcher {self.name}: its command has an empty word")
        if self.name == LOCAL and self.argv:
            raise ValueError(f"launcher {LOCAL} is this machine; give the other one another name")

    @property
    def is_local(self) -> bool:
        return not self.argv

    @property
    def batch(self) -> int | None:
        """Hosts of one order; None: by the number of waiting hosts."""
        return None

    @property
    def patience(self) -> float:
        """Seconds that may pass before the first visit."""
        return 0.0

    @property
    def command(self) -> tuple[str, ...]:
        """The whole argv. Its options keep ssh from prompting, and let it notice a dead network."""
        first, *rest = self.argv
        if PurePath(first).name == "ssh":
            rest = [*BATCH, *rest]
        named = bool(rest) and PurePath(rest[-1]).name == PROGRAM
        return (first, *rest) if named else (first, *rest, PROGRAM)


def launcher(name: str, text: str, **paths: str | None) -> Launcher:
    """A launcher as people write it: `ssh bastion-eu`, or `local`. Raises ValueError."""
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"launcher {name}: {error}: {text}") from error
    if not argv:
        raise ValueError(f"launcher {name}: no command (examples: ssh bastion-eu, {LOCAL})")
    return Launcher(name, () if argv == (LOCAL,) else argv, **paths)


@dataclass(frozen=True)
class Launchers:
    """Launchers, and which of them may reach the hosts of a group. Raises ValueError.

    `sites` maps groups of the inventory, `@dc1`, to names of launchers; `*` is every other host.
    This machine visits hosts of no site. Without sites every launcher may reach every host.
    """

    launchers: tuple[Launcher, ...]
    sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [launcher.name for launcher in self.launchers]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"launcher {repeated[0]} is named twice")
        for site, launcher_names in self.sites.items():
            check_site(site, launcher_names)
            for name in launcher_names:
                if name not in names and name != LOCAL:
                    near = get_close_matches(name, names, 1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    raise ValueError(f"site {site}: there is no launcher {name}{hint}")

    def find_launcher(self, name: str) -> Launcher:
        launchers = (launcher for launcher in self.launchers if launcher.name == name)
        return next(launchers, Launcher(LOCAL))

    def route(self, host: Host) -> tuple[str, ...]:
        """The launchers that may reach a host; none: this machine visits it. Raises ValueError."""
        if not self.sites:
            return tuple(launcher.name for launcher in self.launchers)
        return route(self.sites, host)


@dataclass(frozen=True)
class DaskPool:
    """A Dask scheduler, `tcp://HOST:PORT` or `tls://HOST:PORT`. Raises ValueError.

    Sites are as of `Launchers`, and name one resource of workers each. Paths are the workers'.
    """

    address: str
    sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ssh_config: str | None = None
    known_hosts: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        for site, names in self.sites.items():
            check_site(site, names)
            if len(names) != 1:
                raise ValueError(f"site {site}: with Dask a site is one resource of its workers")

    def find_launcher(self, name: str) -> Launcher:
        resource = () if name == DASK else (name,)
        argv = (sys.executable, "-I", "-m", "nodevet.fleet.worker.pool", self.address, *resource)
        return PoolLauncher(name, argv, self.ssh_config, self.known_hosts, self.key_file)

    def route(self, host: Host) -> tuple[str, ...]:
        """The resource that a worker needs to reach a host, or `dask`. Raises ValueError."""
        return route(self.sites, host) or (DASK,)


class PoolLauncher(Launcher):
    """Sends orders to a Dask pool: small ones, since a pool grows with the number of tasks."""

    @property
    def command(self) -> tuple[str, ...]:
        return self.argv

    @property
    def batch(self) -> int:
        return 100

    @property
    def patience(self) -> float:
        return 600.0  # for workers that a queue must start


Engine = Launchers | DaskPool


def check_site(site: str, names: Sequence[str]) -> None:
    """Raises ValueError."""
    if site != OTHERS and (not site.startswith("@") or len(site) < 2):
        raise ValueError(f"site {site!r}: not a group such as @dc1, nor {OTHERS} for all others")
    if not names:
        raise ValueError(f"site {site}: no launcher may reach it")


def route(sites: Mapping[str, tuple[str, ...]], host: Host) -> tuple[str, ...]:
    """The launchers of a host's sites. Raises ValueError if its sites differ in them."""
    routes = {site: names for site, names in sites.items() if site[1:] in host.groups}
    if len(set(map(frozenset, routes.values()))) > 1:
        contradiction = "; ".join(
            f"{site}: {', '.join(names)}" for site, names in sorted(routes.items())
        )
        raise ValueError(
            f"{host.name} belongs to several sites that are reached differently ({contradiction})"
        )
    return next(iter(routes.values()), sites.get(OTHERS, ()))
