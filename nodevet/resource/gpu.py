"""A setting of a GPU, which nvidia-smi changes: GPU-<uuid>:<field of nodevet.evidence.gpu.Gpu>."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.bounds import Text
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
    switch,
    whole,
)

PAIRS = {
    "locked_clock_graphics_min_mhz": "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz": "locked_clock_memory_max_mhz",
    "app_clock_memory_mhz": "app_clock_graphics_mhz",
}
"""Settings that one command sets together, in the order of its arguments."""

PENDING = {"ecc_pending": "ecc_current", "mig_pending": "mig_current"}
"""A mode that waits -> the one in force."""

_PAIR_COMMANDS = {  # first field: the command that sets both, and the one that sets neither
    "locked_clock_graphics_min_mhz": ("-lgc", "-rgc"),
    "locked_clock_memory_min_mhz": ("-lmc", "-rmc"),
    "app_clock_memory_mhz": ("-ac", "-rac"),
}
_SWITCHES = {"persistence_mode": "-pm", "ecc_pending": "-e", "mig_pending": "-mig"}
_MODES = {"DEFAULT": "0", "EXCLUSIVE_THREAD": "1", "PROHIBITED": "2", "EXCLUSIVE_PROCESS": "3"}


def nvidia_smi(gpu: str, *words: str) -> RunCommand:
    """What sets one GPU: `nvidia-smi -i GPU WORDS`."""
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
        return "" if uuid and field else "does not name a GPU and a setting of it"

    def gpu_of(self, resource: Resource) -> str:
        return _parts(resource)[0]

    def describe(self, state: State) -> str:
        watts = state.resource.name.endswith("_mw") and type(state.value) is int
        return f"{state.value / 1000:g} W" if watts else super().describe(state)

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether a mode waits as it was set: nvidia-smi -i UUID -e 1, -i UUID -mig 0."""
        if len(words) != 5 or words[0] != "nvidia-smi" or words[3] not in ("-e", "-mig"):
            return None
        field = {"-e": "ecc_pending", "-mig": "mig_pending"}[words[3]]
        found = next((each for each in states if each.resource == setting(words[2], field)), None)
        if found is None or found.why or not isinstance(found.value, bool):
            return None
        return found.value is (words[4] == "1")

    def couples(self, resource: Resource, other: Resource) -> bool:
        """A mode of a GPU may reset its clocks and limits."""
        return other.kind == resource.kind and _parts(resource)[0] == _parts(other)[0]

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("nvidia-smi",)

    def restore(
        self, before: State, among: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        uuid, field = _parts(before.resource)
        label = before.resource.label
        if not uuid:
            raise RestoreError(f"{label}: does not name a GPU and a field, as GPU-<uuid>:<field>")
        if field in PAIRS or field in PAIRS.values():
            return [nvidia_smi(uuid, *_pair(before, among))]
        if not before.exists or before.value is None:
            raise RestoreError(f"{label}: the driver does not say what it is")
        if field == "power_limit_mw":
            watts, milliwatts = divmod(whole(before, before.value), 1000)
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
            setting(uuid, each) for pair in PAIRS.items() if field in pair for each in pair
        )

    def waits(self, resource: Resource, evidence: Evidence) -> bool | None:
        uuid, field = _parts(resource)
        if field not in PENDING:
            return None
        data = evidence[Gpus].data
        gpus = (data and data.gpus) or ()
        gpu = next((each for each in gpus if each.uuid == uuid), None)
        if gpu is None:
            return True
        pending, current = getattr(gpu, field), getattr(gpu, PENDING[field])
        return current is None or (pending is not None and pending != current)

    def after_reset(self, evidence: Evidence) -> Evidence:
        """With every mode that waits in force."""
        data = evidence[Gpus].data
        if data is None or not data.gpus:
            return evidence
        return evidence.having(replace(data, gpus=tuple(map(_reset, data.gpus))))


def _reset(gpu: Gpu) -> Gpu:
    modes: Mapping[str, object] = {
        current: getattr(gpu, pending)
        for pending, current in PENDING.items()
        if getattr(gpu, pending) is not None
    }
    return replace(gpu, **modes)


def _pair(before: State, among: Sequence[State]) -> tuple[str, ...]:
    """Both fields of a pair as one command; without values, the command that resets them."""
    uuid, field = _parts(before.resource)
    first = field if field in PAIRS else next(one for one, other in PAIRS.items() if other == field)
    known = {each.resource: each for each in among}
    both = [known.get(setting(uuid, each)) for each in (first, PAIRS[first])]
    told = [each for each in both if each is not None and each.exists and each.value is not None]
    set_them, reset = _PAIR_COMMANDS[first]
    if not told:
        return (reset,)
    if len(told) < len(both):
        raise RestoreError(
            f"{before.resource.label}: {first} and {PAIRS[first]} are restored together"
        )
    return (set_them, ",".join(str(whole(each, each.value)) for each in told))


KIND = GpuKind()
