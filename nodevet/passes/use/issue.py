"""Sign a pass for each host that passed its gate, and put it on the node."""

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodevet.base.printable import brief
from nodevet.base.sshsig import SigningError, sign
from nodevet.fleet import Options, Visit
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.model import Host, HostReport, Run, Severity, Status, exit_code
from nodevet.passes.document import FILE, NAMESPACE, PassError, text_of
from nodevet.passes.use.looks import Facts, facts_of
from nodevet.resource import RunCommand
from nodevet.sheet.text import nodeset

AT_ONCE = 32  # hosts
UNREACHED = (Status.UNREACHABLE, Status.NOT_VISITED, Status.INTERRUPTED, Status.UNREADABLE)
LONGEST = 300  # characters of what a node says
WITHDRAWN = "withdrawn"

FOLDER = """\
d=/run/nodevet; [ "$(id -u)" = 0 ] || { echo "only root may change $d: use --sudo" >&2; exit 1; }; \
mkdir -m 755 "$d" 2>/dev/null; \
if [ -L "$d" ] || [ -n "$(find "$d" -maxdepth 0 ! -type d -o ! -user 0 -o -perm /022)" ]; \
then echo "$d is not a folder that only root may change" >&2; exit 1; fi; """
PUT = (
    FOLDER
    + """\
[ "$(cat /proc/sys/kernel/random/boot_id)" = "$2" ] || \
{ echo "the node was rebooted since it was vetted" >&2; exit 1; }; \
t=$(mktemp "$d/.pass.XXXXXX") || exit 1; trap 'rm -f "$t"' EXIT; \
printf %s "$1" | base64 -d >"$t" && chmod 644 "$t" && chmod 755 "$d" && mv -fT "$t" "$d/pass"\
"""
)
REMOVE = f'[ -e {FILE} ] || [ -L {FILE} ] || exit 0; {FOLDER}rm -f "$d/pass" && echo {WITHDRAWN}'


class Issue:
    """The part of passes in a gate: it keeps what each pass will say, and issues them at the
    end."""

    def __init__(self, key: Path, seconds: float, say: Callable[[str], None]) -> None:
        self._key = key
        self._seconds = int(seconds)
        self._say = say
        self._facts: dict[str, Facts | str] = {}

    def keep(self, visit: Visit, host: Host) -> None:
        """Keep what the pass of a host says, or why it cannot have one."""
        try:
            if host.root != "/":
                raise PassError(f"its files are those below {host.root}")
            facts = facts_of(visit)
            self._facts[host.name] = {**facts, **self._expiry(facts), "host": [host.name]}
        except PassError as error:
            self._facts[host.name] = str(error)

    def _expiry(self, facts: Facts) -> Facts:
        return {"expires": [str(int(facts["vetted"][0]) + self._seconds)]}

    def finish(self, run: Run, hosts: Sequence[Host], options: Options) -> bool:
        """Sign and write the passes, remove those of hosts that failed, and say what was done.
        False if a host that passed has no pass. An interrupted run changes nothing."""
        if run.interrupted:
            self._say("interrupted: no pass is signed or removed")
            return True
        if options.engine is not None:
            self._say("no pass signed: passes are written over SSH, and not through a launcher")
            return False
        reports = {report.host: report for report in run.hosts}
        passed = [name for name, report in reports.items() if _passes(report, run.fail_on)]
        failed = [name for name, one in reports.items() if name not in passed and _is_seen(one)]
        documents = self._signed(passed, run)
        scripts = {
            **{name: ("sh", "-c", PUT, "sh", *words) for name, words in documents.items()},
            **dict.fromkeys(failed, ("sh", "-c", REMOVE)),
        }
        said = dict(_done([host for host in hosts if host.name in scripts], scripts, options))
        issued = [name for name in documents if said[name][0]]
        self._tell(issued, documents.keys() - set(issued), failed, said)
        return len(issued) == len(passed)

    def _signed(self, passed: Sequence[str], run: Run) -> dict[str, tuple[str, str]]:
        """The pass in base64, and the boot that it is for, of each host that can have one."""
        texts: dict[str, bytes] = {}
        for report in run.hosts:
            if report.host not in passed:
                continue
            facts = self._facts.get(report.host, "nothing was read")
            try:
                if isinstance(facts, str):
                    raise PassError(facts)
                sha256 = run.baselines.get(report.baseline, "unknown")
                facts["baseline"] = [f"{sha256} {report.baseline}"]
                texts[report.host] = text_of(facts)
            except PassError as error:
                self._say(f"{report.host}: no pass signed: {brief(str(error), LONGEST)}")
        try:
            signatures = (
                sign([*texts.values()], self._key, NAMESPACE, option="--pass-key") if texts else []
            )
        except SigningError as error:
            self._say(f"no pass signed: {error}")
            return {}
        return {
            name: (base64.b64encode(text + signature).decode(), self._boot(name))
            for (name, text), signature in zip(texts.items(), signatures, strict=True)
        }

    def _boot(self, name: str) -> str:
        facts = self._facts[name]
        return "" if isinstance(facts, str) else facts["boot"][0]

    def _tell(
        self,
        issued: Sequence[str],
        lost: "set[str]",
        failed: Sequence[str],
        said: Mapping[str, tuple[bool, str]],
    ) -> None:
        if issued:
            self._say(f"pass signed and put on {nodeset(issued)}: {FILE}")
        for name in sorted(lost):
            self._say(f"{name}: its pass could not be written: {said[name][1]}")
        removed = [name for name in failed if said[name] == (True, WITHDRAWN)]
        if removed:
            self._say(f"pass withdrawn from {nodeset(removed)}")
        for name in failed:
            if not said[name][0]:
                self._say(f"{name}: its old pass could not be removed: {said[name][1]}")


def _passes(report: HostReport, fail_on: Severity) -> bool:
    return exit_code([report], fail_on) == 0


def _is_seen(report: HostReport) -> bool:
    """Whether a node that did not pass was reached, and not only in a state that passes by
    itself."""
    return report.status not in UNREACHED and not report.is_transient


def _done(
    hosts: Sequence[Host], scripts: Mapping[str, Sequence[str]], options: Options
) -> Iterator[tuple[str, tuple[bool, str]]]:
    """Whether the script of each host succeeded, and what it said."""
    if not hosts:
        return
    with (
        SshExecutor(hosts, options) as executor,
        ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as threads,
    ):

        def run(host: Host) -> tuple[str, tuple[bool, str]]:
            words = (*_sudo(host, options), *scripts[host.name])
            try:
                executor.open(host.name)
                result = executor.act(host.name, RunCommand(words=words))
                executor.close(host.name)
            except WorkError as error:
                return host.name, (False, f"{error.status}: {error.why}")
            said = brief(result.output.strip(), LONGEST)
            return host.name, (result.ok, said)

        yield from threads.map(run, hosts)


def _sudo(host: Host, options: Options) -> tuple[str, ...]:
    """Over SSH the session adds it."""
    is_needed = host.local and (host.sudo or options.sudo) and os.geteuid() != 0
    return ("sudo", "-n") if is_needed else ()
