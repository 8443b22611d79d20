"""A port of an InfiniBand adapter: whether it is disabled. Only its physical state is restored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.bounds import Text
from nodevet.base.printable import plain
from nodevet.resource.core import Action, Kind, Resource, RestoreError, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

PROGRAM = "/usr/sbin/ibportstate"
NAME = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,18})/([1-9][0-9]{0,2})")
DISABLED = "Disabled"
LAST = 254  # the highest number of a port
SECONDS = 60  # a link trains for seconds, and then waits for the subnet manager
SET = f"""\
cd "/sys/class/infiniband/$device/ports/$port" || exit
case $do:$(cat phys_state) in
enable:3:* | disable:[!3]*) {PROGRAM} -C "$device" -P "$port" -D 0 "$port" "$do" || exit ;;
esac
until [ "$(cat "$file")" = "$goal" ]; do
    [ "$limit" -gt 0 ] || {{ echo "it is $(cat state) ($(cat phys_state))" >&2; exit 1; }}
    limit=$((limit - 1)); sleep 1
done
"""
"""ibportstate takes the first active port if -C or -P is missing, and `enable` trains a link that
is up again: so it is called only if the port is disabled."""


class SetInfinibandPort(Action, frozen=True, kw_only=True, tag="set_infiniband_port"):
    """Enable a port and wait until it is active, or disable it."""

    device: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,18}$")]
    port: Annotated[int, Meta(ge=1, le=LAST)]
    enabled: bool

    @property
    def resource(self) -> Resource:
        return Resource(kind="infiniband_port", name=f"{self.device}/{self.port}")

    @property
    def operation(self) -> str:
        return "enable" if self.enabled else "disable"

    @property
    def label(self) -> str:
        return f"ibportstate -C {self.device} -P {self.port} -D 0 {self.port} {self.operation}"

    @property
    def longest(self) -> int:
        return 2 * SECONDS

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        file, goal = ("state", "4: ACTIVE") if self.enabled else ("phys_state", "3: Disabled")
        limit = f"{min(SECONDS, max(1, seconds)):.0f}"
        words = {"device": self.device, "port": str(self.port), "do": self.operation, "file": file,
                 "goal": goal, "limit": limit}  # fmt: skip
        values = (StringCommand(f"{name}=", QuoteString(value), ";", _separator="")
                  for name, value in words.items())  # fmt: skip
        return StringCommand("export LC_ALL=C;", *values, SET)


class InfinibandPortKind(Kind):
    form = Text
    actions = (SetInfinibandPort,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not a port as mlx5_0/1"

    def is_same(self, before: State, current: State) -> bool:
        """A link that goes up or down is no other setting."""
        return before.exists == current.exists and is_disabled(before) == is_disabled(current)

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, SetInfinibandPort):
            return None
        return state.exists and is_disabled(state) != action.enabled

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, SetInfinibandPort):
                name, old = f"{action.device} port {action.port}", before.get(action.resource)
                yield plain(f"-{name}: {self.describe(old) if old else '(not read)'}")
                yield f"+{name}: {action.operation}d"

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        match = NAME.fullmatch(before.resource.name)
        if match is None or not before.exists:
            raise RestoreError(f"{before.resource.label}: there is no such port")
        device, port = match[1], int(match[2])
        return [SetInfinibandPort(device=device, port=port, enabled=not is_disabled(before))]


def is_disabled(state: State) -> bool:
    return bool(state.value == DISABLED)


KIND = InfinibandPortKind()
