"""The boot that a node runs, by its id. Only a reboot ends it, and nothing brings it back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.printable import plain
from nodevet.resource.core import Action, Kind, Resource, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

NODE = "node"  # the only name
STAYED_UP = "it did not go down"
POWER_MAY_HELP = "switch the node off and on by its BMC"
UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
BootId = Annotated[str, Meta(pattern=UUID)]
SAME = f"""[ "$(cat {BOOT_ID})" = "$boot" ] || {{ echo 'it was rebooted since' >&2; exit 1; }}"""


class Reboot(Action, frozen=True, kw_only=True, tag="reboot"):
    """Reboot the node later in the run, if the plan says so.

    The command itself only checks that the node has not rebooted since planning."""

    boot_id: BootId

    @property
    def resource(self) -> Resource:
        return Resource(kind="boot", name=NODE)

    @property
    def label(self) -> str:
        return "reboot the node"

    @property
    def is_one_way(self) -> bool:
        return True

    @property
    def next_resort(self) -> str:
        return POWER_MAY_HELP

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        boot = StringCommand("boot=", QuoteString(self.boot_id), ";", _separator="")
        return StringCommand(boot, SAME)


class BootKind(Kind):
    form = BootId
    actions = (Reboot,)
    leaves_nothing = True

    def name_problem(self, name: str) -> str:
        return "" if name == NODE else f"is not `{NODE}`"

    def has_ended(self, before: State, current: State) -> bool:
        return before.exists and not self.is_same(before, current)

    def describe(self, state: State) -> str:
        return f"boot {str(state.value)[:8]}"

    def holds(self, action: Action, state: State) -> bool | None:
        """None while the boot goes on: the run reboots the node later."""
        is_over = isinstance(action, Reboot) and state.exists and state.value != action.boot_id
        return True if is_over else None

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, Reboot):
                yield plain(f"-boot {action.boot_id}: ended by a reboot; cannot be undone")

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Nothing: a boot that has ended leaves nothing to restore."""
        return ()


KIND = BootKind()
