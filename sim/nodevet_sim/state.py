"""Described hardware as text: what the simulated NVML library answers. Pure, except for profiles.

A state is `key = value` lines; sim/nodevet_sim/nvml/state.h says what they mean. A
profile (sim/nodevet_sim/profiles/*.state) is a state for any number of equal GPUs,
healthy and idle.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from nodevet.base.problems import did_you_mean
from nodevet.evidence.core import Record
from nodevet.evidence.gpu import Gpu, NvLink

SYSTEM_KEYS = frozenset({"init", "count", "driver_version", "nvml_version", "cuda_version"})
EXTRA_GPU_KEYS = frozenset(
    {
        *("cleared_by", "handle", "lost", "fabric.version", "peers.nvlink", "peers.read"),
        *("pcie_rx_kb_s", "pcie_tx_kb_s"),
    }
)
GPU_KEY = re.compile(r"gpu\.(\*|\d{1,3})\.(.+)")
LINK_KEY = re.compile(r"nvlinks\.(?:\*|\d{1,2})\.(\w+)")


class StateError(ValueError):
    """A description that the library would not understand; the message says what is wrong."""


def profiles() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    entries = files("nodevet_sim").joinpath("profiles").iterdir()
    return tuple(sorted(entry.name[:-6] for entry in entries if entry.name.endswith(".state")))


def profile_text(name: str) -> str:
    """One shipped profile. Raises StateError."""
    if name not in profiles():
        raise StateError(f"no profile {name!r}; choose one of: {', '.join(profiles())}")
    return files("nodevet_sim").joinpath(f"profiles/{name}.state").read_text(encoding="utf-8")


@cache
def gpu_keys() -> frozenset[str]:
    """The keys after `gpu.N.`: the fields of evidence.Gpu; `x.y` for fields of its records."""
    keys = set(EXTRA_GPU_KEYS)
    for field in msgspec.structs.fields(Gpu):
        if isinstance(field.type, type) and issubclass(field.type, Record):
            keys.update(f"{field.name}.{part}" for part in _values(field.type))
        else:
            keys.add(field.name)
    return frozenset(keys - {"index", "errors", "mig_devices", "peers"})


def _values(record: type[Record]) -> Iterator[str]:
    return (name for name in record.__struct_fields__ if name not in ("errors", "link"))


def check_key(key: str) -> None:
    """Raises StateError if the library has no such key."""
    gpu = GPU_KEY.fullmatch(key)
    if gpu is None:
        known, part = SYSTEM_KEYS, key
    elif link := LINK_KEY.fullmatch(gpu[2]):
        known, part = frozenset(_values(NvLink)), link[1]
    else:
        known, part = gpu_keys(), gpu[2]
    if part not in known:
        hint = did_you_mean(part, sorted(known))
        raise StateError("; ".join(filter(None, (f"no key {key!r} in a state", hint))))


def line(key: str, value: object) -> str:
    """One line. Booleans are 1 and 0. Raises StateError."""
    check_key(key)
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if "\n" in text or len(text) > 255:
        raise StateError(f"{key}: the value is not one line of at most 255 characters")
    return f"{key} = {text}".rstrip()


def state(
    profile: str, count: int, /, *, bus_ids: Sequence[str] | None = None, **overrides: object
) -> str:
    """A state of `count` GPUs of a profile, each with its own identity.

    Overrides go by key and win: `**{"gpu.3.pcie_width": 8, "driver_version": "570.1"}`.
    `bus_ids` are spelled as sysfs does; by default 0000:01:00.0, 0000:02:00.0 and so on.
    Raises StateError.
    """
    addresses = [f"0000:{index + 1:02x}:00.0" for index in range(count)]
    if bus_ids is not None:
        addresses = list(bus_ids)
    if len(addresses) != count or len(set(addresses)) != count or count > 255:
        raise StateError(f"{count} GPUs need as many different bus ids, and at most 255")
    lines = [profile_text(profile), line("count", count)]
    shared = {key for key in overrides if key.startswith("gpu.*.")}
    has_serial = "gpu.*.serial" not in lines[0] and "gpu.*.serial" not in shared
    for index, address in enumerate(addresses):
        identity: dict[str, object] = {
            "uuid": f"GPU-{index:08x}-5e7d-4e7d-8e7d-{index + 1:012x}",
            "bus_id": address,
            "minor_number": index,
            "module_id": index + 1,
        }
        if has_serial:
            identity["serial"] = f"165{index:010d}"
        lines += [line(f"gpu.{index}.{key}", value) for key, value in identity.items()]
    lines += [line(key, value) for key, value in overrides.items()]
    return "\n".join(lines) + "\n"


def values(text: str) -> dict[str, str]:
    """A state's lines by key, as the library reads them: of equal keys the last wins."""
    rows = (row.strip() for row in text.splitlines())
    pairs = (row.partition("=") for row in rows if row and not row.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def text_of(known: Mapping[str, str]) -> str:
    """The state with these lines. Raises StateError."""
    return "".join(line(key, value) + "\n" for key, value in known.items())


def count_of(known: Mapping[str, str]) -> int:
    """The number of GPUs that a state describes; 0 if it does not say."""
    text = known.get("count", "")
    return int(text) if text.isdecimal() else 0


def of_gpu(known: Mapping[str, str], index: int, key: str) -> str | None:
    """A GPU's value for a key without a link: its own line, or the line of every GPU."""
    return known.get(f"gpu.{index}.{key}", known.get(f"gpu.*.{key}"))


def for_each(known: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The state with these lines on top, so that `gpu.*.key` wins over every `gpu.N.key`.

    Raises StateError for a key that no state has, or a GPU that this one lacks.
    """
    state, count = dict(known), count_of({**known, **changes})
    for key, value in changes.items():
        line(key, value)
        gpu = GPU_KEY.fullmatch(key)
        if gpu is None:
            state[key] = value
        elif gpu[1] == "*":
            state.update({f"gpu.{index}.{gpu[2]}": value for index in range(count)})
        elif int(gpu[1]) >= count:
            raise StateError(f"{key}: the node has no GPU {gpu[1]}, but {count} of them")
        else:
            state[f"gpu.{int(gpu[1])}.{gpu[2]}"] = value
    return state


def without_gpus(known: Mapping[str, str], removed: Sequence[int]) -> dict[str, str]:
    """The state as NVML lists it without these GPUs: those behind them move up."""
    remaining = [index for index in range(count_of(known)) if index not in removed]
    places = {str(index): place for place, index in enumerate(remaining)}
    state = {}
    for key, value in known.items():
        gpu = GPU_KEY.fullmatch(key)
        if gpu is None or gpu[1] == "*":
            state[key] = value
        elif gpu[1] in places:
            state[f"gpu.{places[gpu[1]]}.{gpu[2]}"] = value
    return {**state, "count": str(len(remaining))}
