"""Put a pass on a node, or remove it, over the session that fixes use."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nodevet.base.printable import brief
from nodevet.fleet import FleetError, Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.model import Host
from nodevet.passes.document import FILE
from nodevet.resource import RunCommand

AT_ONCE = 32  # hosts
LONGEST = 300  # characters of what a node says
WITHDRAWN = "withdrawn"

Words = Sequence[str]

_FOLDER = """\
d=/run/nodevet; [ "$(id -u)" = 0 ] || { echo "only root may change $d: use --sudo" >&2; exit 1; }; \
mkdir -m 755 "$d" 2>/dev/null; \
if [ -L "$d" ] || [ "$(find "$d" -maxdepth 0 -type d -user 0 ! -perm /022)" != "$d" ]; \
then echo "$d is not a folder that only root may change" >&2; exit 1; fi; """
_PUT = (
    _FOLDER
    + """\
[ "$(cat /proc/sys/kernel/random/boot_id)" = "$2" ] || \
{ echo "the node was rebooted since it was vetted" >&2; exit 1; }; \
t=$(mktemp "$d/.pass.XXXXXX") || exit 1; trap 'rm -f "$t"' EXIT; \
printf %s "$1" | base64 -d >"$t" && chmod 644 "$t" && chmod 755 "$d" && mv -fT "$t" "$d/pass"\
"""
)
_REMOVE = f'[ -e {FILE} ] || [ -L {FILE} ] || exit 0; {_FOLDER}rm -f "$d/pass" && echo {WITHDRAWN}'


class Done(NamedTuple):
    """Whether a command on a node succeeded, and its output."""

    ok: bool
    output: str


def put_command(encoded: str, boot: str) -> Words:
    """The command that writes a pass, in base64, if the node still runs this boot. It replaces
    whatever lies there, whole."""
    return ("sh", "-c", _PUT, "sh", encoded, boot)


def remove_command() -> Words:
    """The command that removes a pass, and says so if there was one."""
    return ("sh", "-c", _REMOVE)


def on_nodes(
    hosts: Sequence[Host], commands: Mapping[str, Words], options: Options
) -> dict[str, Done]:
    """How the command of each host ended."""
    targets = [host for host in hosts if host.name in commands]
    try:
        return dict(_run(targets, commands, options)) if targets else {}
    except FleetError as error:
        return {host.name: Done(False, str(error)) for host in targets}


def _run(
    hosts: Sequence[Host], commands: Mapping[str, Words], options: Options
) -> Iterator[tuple[str, Done]]:
    with (
        SshExecutor(hosts, options) as executor,
        ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as threads,
    ):

        def run(host: Host) -> tuple[str, Done]:
            words = (*_sudo(host, options), *commands[host.name])
            try:
                executor.open(host.name)
                result = executor.act(host.name, RunCommand(words=words))
            except WorkError as error:
                return host.name, Done(False, f"{error.status}: {error.why}")
            return host.name, Done(result.ok, brief(result.output.strip(), LONGEST))

        yield from threads.map(run, hosts)


def _sudo(host: Host, options: Options) -> Words:
    """Over SSH the session adds it."""
    is_needed = host.local and (host.sudo or options.sudo) and os.geteuid() != 0
    return ("sudo", "-n") if is_needed else ()
