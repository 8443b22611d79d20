"""What a scenario may say of a node. Each class is one mapping of the file."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from nodevet.base.problems import did_you_mean
from nodevet.remote.probe.cpulist import parse_cpulist
from nodevet_sim.captured import AREAS
from nodevet_sim.faults import FAULTS
from nodevet_sim.modules import How
from nodevet_sim.shipped import KINDS, MOST_DEVICES, MOST_GPUS

VERSION = 1
NONE = "none"
SHORT = {"gpus": "profile", "tree": "path", "cpufreq": "driver"}  # key: what its text is
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")  # of a node: a hostname
LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")


class ScenarioPart(pydantic.BaseModel):
    """A mapping of the file."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


def _profile(name: str) -> str:
    if name != NONE and name not in KINDS:
        advice = did_you_mean(name, KINDS, f"choose one of: {', '.join(KINDS)}, none")
        raise ValueError(f"there is no such GPU profile; {advice}")
    return name


def _area(name: str) -> str:
    if name not in AREAS:
        advice = did_you_mean(name, AREAS, f"choose one of: {', '.join(AREAS)}")
        raise ValueError(f"there is no such area of a tree; {advice}")
    return name


def _short(field: str) -> Callable[[Any], Any]:
    """Text instead of a mapping is the value of its main field."""
    return lambda value: {field: value} if isinstance(value, str) else value


def _list(text: str) -> str:
    try:
        parse_cpulist(text)
    except ValueError:
        raise ValueError("not a list of numbers; write it as 0-3,8") from None
    if not text.strip():
        raise ValueError("the list is empty; write 0-3,8")
    return text


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not one line of printable text")
    return text


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, (str, dict)) else _listed(value)


def _listed(value: Any) -> Any:
    """A list, if pydantic is strict and expects a tuple."""
    return tuple(value) if isinstance(value, list) else value


LISTED = BeforeValidator(_listed)
Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]
Area = Annotated[str, AfterValidator(_area)]
Profile = Annotated[str, AfterValidator(_profile)]
Minor = Annotated[int, Field(ge=0, le=255)]
IdList = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_list)]
Line = Annotated[str, Field(min_length=1, max_length=900), AfterValidator(_line)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
PathText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_line)]


ModuleName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,56}$"),
    AfterValidator(lambda name: name.replace("-", "_")),
]


class GpusPart(ScenarioPart):
    """`h100-sxm`, `none`, `{profile: h100-sxm, count: 8}` or `{xml: incident.xml}`.

    The XML is what `nvidia-smi -q -x` printed. Paths are from the scenario's folder.
    """

    profile: Profile | None = None
    count: Count | None = None
    xml: PathText | None = None

    @pydantic.model_validator(mode="after")
    def _check_source(self) -> "GpusPart":
        if (self.profile is None) == (self.xml is None):
            raise ValueError("give either profile or xml")
        if self.count is not None and self.profile in (None, NONE):
            raise ValueError("count goes with a profile; remove it")
        return self


class TreePart(ScenarioPart):
    """`capture.tar.gz` or `{path: capture.tar.gz, only: [sys/devices/system/cpu]}`"""

    path: PathText
    only: Annotated[tuple[Area, ...], LISTED] | None = None
    """Areas of the captured tree that are taken; without it all of them."""


class NumaPart(ScenarioPart):
    per_socket: Annotated[int, Field(ge=1, le=8)] | None = None
    memory_only: Annotated[int, Field(ge=0, le=8)] | None = None
    memory_gb: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Of each node."""
    balancing: Literal[0, 1, 2] | None = None


Driver = Literal["none", "intel_pstate", "intel_cpufreq", "amd-pstate-epp", "acpi-cpufreq"]


class CpufreqPart(ScenarioPart):
    """`none`, or what differs from the machine's own."""

    driver: Driver | None = None
    per: Literal["cpu", "core", "socket"] | None = None
    governors: Annotated[tuple[Word, ...], LISTED, Field(min_length=1)] | None = None
    min_mhz: Annotated[int, Field(ge=100, le=10000)] | None = None
    max_mhz: Annotated[int, Field(ge=100, le=10000)] | None = None


class LogPart(ScenarioPart):
    text: Line
    after: Annotated[float, Field(ge=0, le=1e9)] = 3.0
    """Seconds after boot."""
    level: Literal["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"] = (
        "warning"
    )


class LoadPart(ScenarioPart):
    """A process that holds GPUs, by the N of /dev/nvidia<N>."""

    gpus: tuple[Minor, ...]
    command: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,15}$")] = "python3"
    cpus: IdList | None = None
    mems: IdList | None = None
    utilization: Annotated[int, Field(ge=0, le=100)] = 100
    memory_mb: Annotated[int, Field(ge=0, le=1_000_000)] = 1024


class SwapPart(ScenarioPart):
    """A swap file; a partition where its name is below /dev. /etc/fstab has its line."""

    name: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}){1,9}$")]
    kb: Annotated[int, Field(ge=40, le=1 << 40)]
    """Size in KiB."""
    used_kb: Annotated[int, Field(ge=0)] = 0
    """Whenever it is on."""
    priority: Annotated[int, Field(ge=0, le=32767)] | None = None
    """Without one the kernel gives one below zero."""

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "SwapPart":
        if self.used_kb > self.kb:
            raise ValueError("more is used than the swap has; make kb larger")
        return self


def _fault(value: Any) -> Any:
    """`name` or `{name: {parameter: value}}`."""
    name, params = value, None
    if isinstance(value, dict) and len(value) == 1:
        name, params = next(iter(value.items()))
    params = {} if params is None else params
    if not isinstance(name, str) or not isinstance(params, dict):
        raise ValueError("a fault is a name, or {name: {parameter: value}}")
    if name not in FAULTS:
        advice = did_you_mean(name, FAULTS, f"choose one of: {', '.join(FAULTS)}")
        raise ValueError(f"there is no fault {name[:60]!r}; {advice}")
    return {name: params}


Fault = Annotated[dict[str, dict[str, Any]], BeforeValidator(_fault)]


class NodePart(ScenarioPart):
    """A node, or a template of nodes."""

    template: str | None = None
    gpus: Annotated[GpusPart, BeforeValidator(_short(SHORT["gpus"]))] | None = None
    tree: Annotated[TreePart, BeforeValidator(_short(SHORT["tree"]))] | None = None
    sockets: Annotated[int, Field(ge=1, le=32)] | None = None
    cores: Annotated[int, Field(ge=1, le=512)] | None = None
    """Of each socket."""
    smt: bool | None = None
    numa: NumaPart | None = None
    cpufreq: Annotated[CpufreqPart, BeforeValidator(_short(SHORT["cpufreq"]))] | None = None
    governor: Word | None = None
    nics: Annotated[int, Field(ge=0, le=MOST_DEVICES)] | None = None
    nic_kind: Literal["infiniband", "ethernet", "efa"] | None = None
    nvme: Annotated[int, Field(ge=0, le=MOST_DEVICES)] | None = None
    nfs: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._-]{1,60}){1,9}$")] | None = None
    """Where /proc/1/mountstats says that an NFS file system is mounted."""
    nvlink_domain: Annotated[int, Field(ge=2, le=1024)] | None = None
    """How many nodes share its NVLink domain, with IMEX."""
    cmdline: Line | None = None
    nvml: dict[str, str] = {}
    files: dict[str, str | None] = {}
    modules: dict[ModuleName, How] = {}
    faults: Annotated[tuple[Fault, ...], BeforeValidator(_one_or_more)] = ()
    kernel_log: tuple[LogPart, ...] = ()
    load: tuple[LoadPart, ...] = ()
    swap: Annotated[tuple[SwapPart, ...], Field(max_length=29)] = ()
    disk_mb: Annotated[int, Field(ge=64, le=65536)] = 1024


FIELDS = tuple(NodePart.model_fields)
