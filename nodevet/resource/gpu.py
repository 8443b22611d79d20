"""A setting of a GPU, which nvidia-smi changes: GPU-<uuid>:<field of nodevet.evidence.gpu.Gpu>."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.bounds import Text
from nodevet.base.uuids import GPU_UUID
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.resource.core import (
    Action,
    Integer,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    integer,
    switch,
)

PAIRS = {
    "locked_clock_graphics_min_mhz": "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz": "locked_clock_memory_max_mhz",
    "app_clock_memory_mhz": "app_clock_graphics_mhz",
}
"""Settings that one command sets together, in the order of its arguments."""

PENDING = {"ecc_pending": "ecc_current", "mig_pending": "mig_current"}
"""The field of a pending mode -> the field of the mode in force."""

_PAIR_COMMANDS = {  # first field: the command that sets both, and the one that sets neither
    "locked_clock_graphics_min_mhz": ("-lgc", "-rgc"),
    "locked_clock_memory_min_mhz": ("-lmc", "-rmc"),
    "app_clock_memory_mhz": ("-ac", "-rac"),
}
_SWITCHES = {"persistence_mode": "-pm", "ecc_pending": "-e", "mig_pending": "-mig"}
_RESETS = {"-r", "--gpu-reset"}
_MODES = {"DEFAULT": "0", "EXCLUSIVE_THREAD": "1", "PROHIBITED": "2", "EXCLUSIVE_PROCESS": "3"}


def nvidia_smi(gpu: str, *words: str) -> RunCommand:
    """`nvidia-smi -i GPU WORDS`. `gpu`: its UUID, because its number may shift."""
    return RunCommand(words=("nvidia-smi", "-i", gpu, *words))


def setting(uuid: str, field: str) -> Resource:
    return Resource(kind="gpu", name=f"{uuid}:{field}")


def _parts(resource: Resource) -> tuple[str, str]:
    """UUID and field."""
    uuid, _, field = resource.name.rpartition(":")
    return uuid, field


class GpuKind(Kind):
    form = Text | bool | Integer | float
    is_setting = True
    services = frozenset({"nvidia-persistenced.service"})

    def name_problem(self, name: str) -> str:
        uuid, _, field = name.rpartition(":")
        if GPU_UUID.fullmatch(uuid) and field:
            return ""
        return "does not name a GPU by its UUID and a setting of it"

    def gpu_of(self, resource: Resource) -> str:
        return _parts(resource)[0]

    def describe(self, state: State) -> str:
        watts = state.resource.name.endswith("_mw") and type(state.value) is int
        return f"{state.value / 1000:g} W" if watts else super().describe(state)

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether a mode is pending as a command set it: `-i UUID -e 1`, `-i UUID -mig 0`."""
        if len(words) != 5 or words[0] != "nvidia-smi" or words[3] not in ("-e", "-mig"):
            return None
        field = {"-e": "ecc_pending", "-mig": "mig_pending"}[words[3]]
        state = next(
            (candidate for candidate in states if candidate.resource == setting(words[2], field)),
            None,
        )
        if state is None or state.why or not isinstance(state.value, bool):
            return None
        return state.value is (words[4] == "1")

    def couples(self, resource: Resource, other: Resource) -> bool:
        """A GPU's mode may reset its clocks and limits."""
        return other.kind == resource.kind and _parts(resource)[0] == _parts(other)[0]

    def names_all(self, words: Sequence[str]) -> bool:
        """Without -i it changes all GPUs, and the number of a GPU may be another's by now; a reset
        takes those along that NVLink connects."""
        if words[:2] != ("nvidia-smi", "-i") or len(words) < 3 or _RESETS & set(words):
            return False
        return all(gpu.startswith("GPU-") for gpu in words[2].split(","))

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        uuid, field = _parts(before.resource)
        label = before.resource.label
        if not uuid:
            raise RestoreError(f"{label}: does not name a GPU and a field, as GPU-<uuid>:<field>")
        if field in PAIRS or field in PAIRS.values():
            return [nvidia_smi(uuid, *_pair(before, siblings))]
        if not before.exists or before.value is None:
            raise RestoreError(f"{label}: the driver does not say what it is")
        if field == "power_limit_mw":
            watts, milliwatts = divmod(integer(before, before.value), 1000)
            words = ("-pl", f"{watts}.{milliwatts:03}" if milliwatts else f"{watts}")
        elif field == "compute_mode":
            if str(before.value) not in _MODES:
                raise RestoreError(f"{label}: {before.value!r} is not a compute mode")
            words = ("-c", _MODES[str(before.value)])
        elif field in _SWITCHES:
            words = (_SWITCHES[field], "1" if switch(before, before.value) else "0")
        else:
            raise RestoreError(f"{label}: {field} cannot be restored")
        return [nvidia_smi(uuid, *words)]

    def restored_with(self, resource: Resource) -> tuple[Resource, ...]:
        uuid, field = _parts(resource)
        return tuple(
            setting(uuid, name) for pair in PAIRS.items() if field in pair for name in pair
        )

    def is_pending(self, resource: Resource, evidence: Evidence) -> bool | None:
        uuid, field = _parts(resource)
        if field not in PENDING:
            return None
        data = evidence[Gpus].data
        gpus = (data and data.gpus) or ()
        gpu = next((device for device in gpus if device.uuid == uuid), None)
        if gpu is None:
            return True
        pending, current = getattr(gpu, field), getattr(gpu, PENDING[field])
        return current is None or (pending is not None and pending != current)

    def after_reset(self, evidence: Evidence) -> Evidence:
        """The evidence with every pending mode in force."""
        data = evidence[Gpus].data
        if data is None or not data.gpus:
            return evidence
        return evidence.with_data(replace(data, gpus=tuple(map(_reset, data.gpus))))


def _reset(gpu: Gpu) -> Gpu:
    modes: Mapping[str, object] = {
        current: getattr(gpu, pending)
        for pending, current in PENDING.items()
        if getattr(gpu, pending) is not None
    }
    return replace(gpu, **modes)


def _pair(before: State, siblings: Sequence[State]) -> tuple[str, ...]:
    """Options that set both fields of a pair, or reset them if neither has a value."""
    uuid, field = _parts(before.resource)
    first, second = next(pair for pair in PAIRS.items() if field in pair)
    resources = (setting(uuid, first), setting(uuid, second))
    by_resource = {state.resource: state for state in siblings if state.resource in resources}
    states = [by_resource[resource] for resource in resources if resource in by_resource]
    states = [state for state in states if state.exists and state.value is not None]
    option, reset_option = _PAIR_COMMANDS[first]
    if not states:
        return (reset_option,)
    if len(states) < len(resources):
        raise RestoreError(f"{before.resource.label}: {first} and {second} are restored together")
    return (option, ",".join(str(integer(state, state.value)) for state in states))


KIND = GpuKind()
