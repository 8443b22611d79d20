"""Why a GPU needs a reset, by its UUID. A reset ends this need, and cannot be undone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.bounds import Text
from nodevet.base.printable import plain
from nodevet.base.uuids import GPU_UUID
from nodevet.resource.core import Action, ActionError, Form, Kind, Resource, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

GpuUuid = Annotated[str, Meta(pattern=rf"^{GPU_UUID.pattern}\Z")]
NEXT = "reboot the node; if that does not help, power it off and on"
SECONDS = 300  # a reset takes seconds for each GPU, and scrubs its memory
RESET = f"""\
on() {{ [ -z "$on" ] || nvidia-smi -pm 1 -i "$on"; }}
trap 'on; exit 143' HUP INT TERM
[ -z "$off" ] || nvidia-smi -pm 0 -i "$off"
said=$(nvidia-smi --gpu-reset -i "$gpu" 2>&1); code=$?
printf '%s\\n' "$said"
on || {{ late=$?; echo 'persistence mode could not be restored' >&2; }}
case $code:$said in
0:*) exit "${{late:-0}}";;
3:*) why='its driver cannot reset it: {NEXT}';;
4:*) why='no permission to reset it';;
9:*) why='the NVIDIA driver is not loaded';;
15:*) why='it is off the bus, where no reset reaches it: {NEXT}';;
255:*'In use by another client'*) why='something holds it open; stop that, or {NEXT}';;
*) why='the reset failed: {NEXT}';;
esac
echo "$why" >&2; exit "$code"
"""
"""Persistence mode holds a GPU like a client. It is on again however the reset ends. Without -i
nvidia-smi would also reset GPUs that the plan does not name."""

FABRIC = """\
end=$(($(date +%s) + limit))
while state=$(nvidia-smi --query-gpu=fabric.state --format=csv,noheader -i "$gpu" 2>&1) || true
    [ "$state" = Completed ] && exit 0
    [ "$(date +%s)" -lt "$end" ]
do sleep 1; done
echo "not registered with the fabric: $state" >&2; exit 1
"""


class ResetGpu(Action, frozen=True, kw_only=True, omit_defaults=True, tag="reset_gpu"):
    """Reset one GPU, or all GPUs of the node together."""

    uuid: GpuUuid
    others: tuple[GpuUuid, ...] = ()
    """All other GPUs of the node, which the same command resets; none: only this GPU."""
    persistent: tuple[GpuUuid, ...] = ()
    """GPUs whose persistence mode is on afterwards; nvidia-smi turns it off for the reset."""

    @property
    def resource(self) -> Resource:
        return Resource(kind="gpu_reset", name=self.uuid)

    @property
    def label(self) -> str:
        return f"reset {self.uuid}" + " and all other GPUs" * bool(self.others)

    @property
    def is_one_way(self) -> bool:
        return True

    @property
    def longest(self) -> int:
        return SECONDS

    @property
    def next_resort(self) -> str:
        return NEXT

    def command(self, *, seconds: float) -> "StringCommand":
        gpus = _list((self.uuid, *self.others))
        off = _list([uuid for uuid in self.persistent if uuid in gpus.split(",")])
        return _script(RESET, gpu=gpus, off=off, on=_list(self.persistent))


class AwaitFabric(Action, frozen=True, kw_only=True, tag="await_fabric"):
    """Wait until a GPU is registered with its fabric again after its reset."""

    uuid: GpuUuid

    @property
    def resource(self) -> Resource:
        return Resource(kind="gpu_reset", name=self.uuid)

    @property
    def label(self) -> str:
        return f"wait until {self.uuid} is registered with its fabric"

    @property
    def longest(self) -> int:
        return SECONDS

    def command(self, *, seconds: float) -> "StringCommand":
        return _script(FABRIC, gpu=_list([self.uuid]), limit=f"{max(1, seconds):.0f}")


class GpuResetState(Form, frozen=True, kw_only=True):
    needed_for: tuple[Text, ...]
    """remapping.pending, GPU_RESET, NVML_ERROR_RESET_REQUIRED, ...: what a reset ends."""


class GpuResetKind(Kind):
    form = GpuResetState
    actions = (ResetGpu, AwaitFabric)
    leaves_nothing = True

    def name_problem(self, name: str) -> str:
        return "" if GPU_UUID.fullmatch(name) else "is not the UUID of a GPU"

    def gpu_of(self, resource: Resource) -> str:
        return resource.name

    def has_ended(self, before: State, current: State) -> bool:
        """A need that ended does not come back by a command."""
        return not self.is_same(before, current)

    def describe(self, state: State) -> str:
        needs = state.mapping.get("needed_for") or ()
        return f"a reset is needed for {', '.join(needs)}" if needs else "no reset is needed"

    def holds(self, action: Action, state: State) -> bool | None:
        """Whether the GPU needs no reset any more; the state does not show the fabric."""
        if isinstance(action, ResetGpu):
            return state.exists and not state.mapping.get("needed_for")
        return None

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, ResetGpu):
                yield from _diff(action, before.get(action.resource))
            else:
                yield f"+{plain(action.label)}"

    def couples(self, resource: Resource, other: Resource) -> bool:
        """A GPU forgets its settings; without nvidia-persistenced the others do too."""
        return other.kind == "gpu"

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Nothing: a GPU that was reset has lost nothing that could be restored."""
        return ()


def _diff(action: ResetGpu, before: State | None) -> Iterator[str]:
    if before is not None and before.exists:
        yield f"-{plain(action.uuid)}: {plain(GpuResetKind().describe(before))}"
    gpus = _list((action.uuid, *action.others))
    yield plain(f"+{action.label}: nvidia-smi --gpu-reset -i {gpus}; cannot be undone")
    if action.persistent:
        yield plain(f"+persistence mode off before it, and on after it: {_list(action.persistent)}")


def _list(uuids: Sequence[str]) -> str:
    """UUIDs as `nvidia-smi -i` takes them. Raises ActionError."""
    for uuid in uuids:
        if not GPU_UUID.fullmatch(uuid):
            raise ActionError(f"{uuid!r} is not the UUID of a GPU")
    return ",".join(uuids)


def _script(text: str, **variables: str) -> "StringCommand":
    """A script of sh with these variables. Raises ActionError for a value that is not plain."""
    from pyinfra.api.command import QuoteString, StringCommand

    bits: list[str | StringCommand] = ["export LC_ALL=C;"]
    for name, value in variables.items():
        bits.append(StringCommand(f"{name}=", QuoteString(value), ";", _separator=""))
    return StringCommand(*bits, text)


KIND = GpuResetKind()
