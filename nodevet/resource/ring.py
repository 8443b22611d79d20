"""The ring sizes of a network interface, in descriptors of each receive and each transmit ring."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.printable import plain
from nodevet.resource.core import Action, Form, Kind, Resource, RestoreError, State, integer

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
SET = 'ethtool -G "$@" || { code=$?; [ "$code" = 80 ] || exit "$code"; }'
"""ethtool before 5.7 ends with 80 if the sizes are those already."""

Size = Annotated[int, Meta(ge=0, le=1 << 32)]
SIDES = ("rx", "tx")


class RingSizes(Form, frozen=True, kw_only=True):
    rx: Size
    tx: Size


class SetRings(Action, frozen=True, kw_only=True, omit_defaults=True, tag="set_rings"):
    """Set the sizes of the receive rings, the transmit rings or both, until the next boot."""

    interface: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")]
    rx: Size | None = None
    tx: Size | None = None

    @property
    def resource(self) -> Resource:
        return Resource(kind="ring", name=self.interface)

    @property
    def sizes(self) -> Mapping[str, int]:
        pairs = (("rx", self.rx), ("tx", self.tx))
        return {side: size for side, size in pairs if size is not None}

    @property
    def words(self) -> tuple[str, ...]:
        options = (word for side, size in self.sizes.items() for word in (side, str(size)))
        return (self.interface, *options)

    @property
    def label(self) -> str:
        return f"ethtool -G {' '.join(self.words)}"

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        words = (QuoteString(word) for word in self.words)
        return StringCommand("export LC_ALL=C; set --", *words, ";", SET)


class RingKind(Kind):
    form = RingSizes
    actions = (SetRings,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not an interface as ens1f0"

    def describe(self, state: State) -> str:
        return ", ".join(f"{side} {size}" for side, size in state.mapping.items())

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, SetRings):
            return None
        sizes = action.sizes.items()
        return state.exists and all(state.mapping.get(side) == size for side, size in sizes)

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, SetRings):
                old = before.get(action.resource)
                for side, size in action.sizes.items():
                    was = old.mapping.get(side, "(absent)") if old else "(not read)"
                    yield plain(f"-{action.interface} ring {side}: {was}")
                    yield f"+{action.interface} ring {side}: {size}"

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        if not before.exists:
            raise RestoreError(f"{before.resource.label}: there is no such interface")
        rx, tx = (integer(before, before.mapping.get(side)) for side in SIDES)
        return [SetRings(interface=before.resource.name, rx=rx or None, tx=tx or None)]


KIND = RingKind()
