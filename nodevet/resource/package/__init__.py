"""A package of the distribution: its version, and whether it is held or automatically installed."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from nodevet.base.bounds import Text
from nodevet.resource.core import Action, Form, Kind, RestoreError, RunCommand, State, Traces
from nodevet.resource.package import apt, rpm


class PackageState(Form, frozen=True, kw_only=True):
    version: Text
    held: bool
    automatic: bool | UnsetType = UNSET  # apt's alone


class PackageKind(Kind):
    form = PackageState
    actions = (apt.WaitForDpkg,)
    hides_gpus = True

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether packages have the version or mark that a command was to set."""
        expected = apt.sets(words) or rpm.sets(words)
        if not expected:
            return None
        packages = [state for state in states if state.resource.kind == "package"]
        by_name = {state.resource.name: state for state in packages}
        for state in packages:
            by_name.setdefault(state.resource.name.rpartition(".")[0], state)
        if any(name not in by_name or by_name[name].why for name, _, _ in expected):
            return None
        return all(by_name[name].mapping.get(field) == value for name, field, value in expected)

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("apt-mark",) or rpm.is_lock(words)

    def is_of_step(self, traces: Traces, current: State) -> bool | None:
        """Whether its versions are those of the step: a transaction, or its revert, may have ended
        in the middle, with other marks, several versions or an unconfigured one."""
        targets = [
            version
            for action in traces.actions
            if isinstance(action, RunCommand)
            for name, field, version in apt.sets(action.words) or rpm.sets(action.words) or ()
            if field == "version" and name == current.resource.name
        ]
        known = {*targets, *_versions(traces.before), *_versions(traces.after)}
        return True if current.exists and known.issuperset(_versions(current)) else None

    def restore_rank(self, before: State) -> int:
        return -1

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Install all in one transaction, since they depend on one another; then set their marks.

        This works only if the step used apt-get, dnf or zypper: the versions come from the node's
        repositories.
        """
        commands = [action for action in actions if isinstance(action, RunCommand)]
        states = sorted(siblings, key=lambda state: state.resource.name)
        if any("apt-get" in command.words for command in commands):
            return apt.restore(states)
        if any(rpm.manager_of(command.words) for command in commands):
            return rpm.restore(states, commands)
        raise RestoreError(
            f"{before.resource.label}: only what apt-get, dnf or zypper installed can be restored"
        )


def _versions(state: State | None) -> list[str]:
    """The installed versions, also of a package that is not configured: `1.2-1 (iU)`."""
    version = state.mapping.get("version") if state else None
    return version.partition(" (")[0].split(", ") if isinstance(version, str) else []


KIND = PackageKind()
