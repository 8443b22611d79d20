"""Sign a pass for each host that passed its gate, and put it on the node."""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodevet.base.printable import brief
from nodevet.base.sshsig import SigningError, sign
from nodevet.fleet import Options, Visit
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.model.run import Run, exit_code
from nodevet.passes.document import FILE, NAMESPACE, PassError, text_of
from nodevet.passes.use.looks import Facts, facts_of
from nodevet.passes.use.on_nodes import (
    LONGEST,
    WITHDRAWN,
    Done,
    on_nodes,
    put_command,
    remove_command,
)
from nodevet.sheet.text import nodeset

UNREACHED = (Status.UNREACHABLE, Status.NOT_VISITED, Status.INTERRUPTED, Status.UNREADABLE)
NOT_READ = "nothing was read"


class Issue:
    """The part of passes in a gate: it keeps what each pass will say, and issues them at the
    end."""

    def __init__(self, key: Path, seconds: float, say: Callable[[str], None]) -> None:
        self._key = key
        self._seconds = int(seconds)
        self._say = say
        self._facts: dict[str, Facts | str] = {}  # or why a host cannot have a pass

    def keep(self, visit: Visit, host: Host) -> None:
        """Keep what the pass of a host says."""
        try:
            if host.root != "/":
                raise PassError(f"only files below {host.root} were read")
            facts = facts_of(visit)
        except PassError as error:
            self._facts[host.name] = str(error)
            return
        expires = str(int(facts["vetted"][0]) + self._seconds)
        self._facts[host.name] = {**facts, "host": [host.name], "expires": [expires]}

    def finish(self, run: Run, hosts: Sequence[Host], options: Options) -> bool:
        """Sign and write the passes, remove those of hosts that failed, and say what was done.
        False if a host that passed has no pass. An interrupted run changes nothing."""
        if run.interrupted:
            self._say("interrupted: no pass is signed or removed")
            return True
        if options.engine is not None:
            self._say("no pass signed: nodevet writes passes over SSH, not through a launcher")
            return False
        reports = list(run.hosts)
        passed = [report for report in reports if exit_code([report], run.fail_on) == 0]
        names = {report.host for report in passed}
        failed = [report.host for report in reports if is_withdrawn(report, run.fail_on)]
        passes = self._signed(self._texts(run, passed))
        done = on_nodes(hosts, {**passes, **dict.fromkeys(failed, remove_command())}, options)
        self._tell(passes, failed, done)
        return all(name in passes and done[name].ok for name in names)

    def _texts(self, run: Run, passed: Sequence[HostReport]) -> dict[str, bytes]:
        """The text to sign for each host; says why a host can have none."""
        texts: dict[str, bytes] = {}
        for report in passed:
            try:
                texts[report.host] = self._text(run, report)
            except PassError as error:
                self._say(f"{report.host}: no pass signed: {brief(str(error), LONGEST)}")
        return texts

    def _text(self, run: Run, report: HostReport) -> bytes:
        facts = self._facts.get(report.host, NOT_READ)
        if isinstance(facts, str):
            raise PassError(facts)
        if report.baseline not in run.baselines:
            raise PassError("no baseline judged it")
        baseline = f"{run.baselines[report.baseline]} {report.baseline}"
        return text_of({**facts, "baseline": [baseline]})

    def _signed(self, texts: Mapping[str, bytes]) -> dict[str, Sequence[str]]:
        """The command that writes the pass of each host."""
        if not texts:
            return {}
        try:
            signatures = sign([*texts.values()], self._key, NAMESPACE, option="--pass-key")
        except SigningError as error:
            self._say(f"no pass signed: {error}")
            return {}
        return {
            name: put_command(base64.b64encode(text + signature).decode(), self._boot(name))
            for (name, text), signature in zip(texts.items(), signatures, strict=True)
        }

    def _boot(self, name: str) -> str:
        facts = self._facts[name]
        return "" if isinstance(facts, str) else facts["boot"][0]

    def _tell(
        self, passes: Mapping[str, object], failed: Sequence[str], done: Mapping[str, Done]
    ) -> None:
        if issued := [name for name in passes if done[name].ok]:
            self._say(f"pass signed and put on {nodeset(issued)}: {FILE}")
        for name in passes:
            if not done[name].ok:
                self._say(f"{name}: its pass could not be written: {done[name].output}")
        if removed := [name for name in failed if done[name] == (True, WITHDRAWN)]:
            self._say(f"pass withdrawn from {nodeset(removed)}")
        for name in failed:
            if not done[name].ok:
                self._say(f"{name}: its old pass stays until it expires: {done[name].output}")


def is_withdrawn(report: HostReport, fail_on: Severity) -> bool:
    """Whether a host loses its pass: it was reached, did not pass, and is not only unknown in a
    state that passes by itself."""
    code = exit_code([report], fail_on)
    return report.status not in UNREACHED and (code == 1 or (code != 0 and not report.is_transient))
