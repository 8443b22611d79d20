"""What puts touches back as they were seen: actions again, so that a rollback runs like a plan.

Pure. A touch that could not be put back raises UndoError; a plan asks before it names one,
and so nothing is changed that has no way back.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nodevet.resource import Actions, AnyAction, Resource, RunCommand, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

PAIRS = {
    "locked_clock_graphics_min_mhz": "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz": "locked_clock_memory_max_mhz",
    "app_clock_memory_mhz": "app_clock_graphics_mhz",
}
"""GPU settings that one command sets together, in the order of its arguments."""

_PAIR_COMMANDS = {  # first field: the command that sets both, and the one that sets neither
    "locked_clock_graphics_min_mhz": ("-lgc", "-rgc"),
    "locked_clock_memory_min_mhz": ("-lmc", "-rmc"),
    "app_clock_memory_mhz": ("-ac", "-rac"),
}
_SWITCHES = {"persistence_mode": "-pm", "ecc_pending": "-e", "mig_pending": "-mig"}
_MODES = {"DEFAULT": "0", "EXCLUSIVE_THREAD": "1", "PROHIBITED": "2", "EXCLUSIVE_PROCESS": "3"}
_UNDONE = ("linked", "linked-runtime", "enabled-runtime", "masked-runtime")
_ON = ("1", "true", "on", "yes", "enabled", "active", "loaded")
_OFF = ("0", "false", "off", "no", "disabled", "inactive", "failed", "unloaded")


_APT_LOCK = 300  # seconds, while unattended-upgrades and its like work
_APT_SECONDS = 1800  # for DKMS to build modules for every kernel
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")  # deb-version(7)
_DISCARD = re.compile(r"[\s,](discard(?:=(?:once|pages))?)(?=[\s,]|$)")  # of swap, fstab(5)
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_UNLOAD = 'test ! -d "/sys/module/$1" || exec rmmod -- "$1"'
_LIST = re.compile(r"[0-9]+([,-][0-9]+)*")


class UndoError(Exception):
    """An earlier state that cannot be put back; the message says of what and why."""


def undo(*seen: State, actions: Actions = ()) -> Actions:
    """What puts these touches of one node back, in the order in which it is done: from the last
    to the first, but files before what reads them, and new units before their files.

    Clocks have two touches that one command sets: give both at once; packages, too. `actions`
    are those of the step: a unit that they restart is restarted again, for its files are the
    old ones, and packages are put back by what they were installed with.
    Raises UndoError.
    """
    if names := stopped_around(actions):
        return _undo_around(names, seen, actions)
    restarted = {
        action.name for action in actions if isinstance(action, SetUnit) and action.restart
    }
    by_touch = {each.resource: each for each in seen}
    packages = [each for each in by_touch.values() if each.resource.kind == "package"]
    backwards = [each for each in reversed(by_touch.values()) if each not in packages]
    done: list[AnyAction] = [*_packages(packages, actions)]
    for each in sorted(backwards, key=_place):
        done += _one(each, by_touch, restarted)
    done += _reread(done, restarted)
    return tuple(dict.fromkeys(done))


def _undo_around(names: Sequence[str], seen: Sequence[State], actions: Actions) -> Actions:
    """What a step did while services were stopped is put back while they are, too."""
    own = [each for each in seen if each.resource.kind == "unit" and each.resource.name in names]
    others = [each for each in seen if each not in own]
    back = undo(*own)
    if not others:
        return back
    known = {each.resource.name for each in own}
    return (
        *(SetUnit(name=name, running=False) for name in names),
        *undo(*others, actions=actions[len(names) : -len(names)]),
        *back,
        *(SetUnit(name=name, running=True) for name in reversed(names) if name not in known),
    )


def stopped_around(actions: Actions) -> tuple[str, ...]:
    """The units that a step stops first and starts last, in the order in which it stops them."""
    found = []
    for first, last in zip(actions, reversed(actions), strict=True):
        if not isinstance(first, SetUnit) or first != SetUnit(name=first.name, running=False):
            break
        if last != SetUnit(name=first.name, running=True):
            break
        found.append(first.name)
    return tuple(found)


def _reread(done: Sequence[AnyAction], restarted: set[str]) -> list[SetUnit | RunCommand]:
    """What makes systemd and the units read the files that were put back."""
    first = next((place for place, each in enumerate(done) if isinstance(each, WriteFile)), None)
    if first is None:
        return []
    if left := restarted - {each.name for each in done if isinstance(each, SetUnit)}:
        return [SetUnit(name=name, restart=True) for name in sorted(left)]
    after = done[first:]
    read = any(isinstance(each, SetUnit) for each in after)  # it makes systemd read its files
    of_systemd = any(
        isinstance(each, WriteFile) and ("/systemd/" in each.path or each.path == "/etc/fstab")
        for each in after
    )
    return [RunCommand(words=("systemctl", "daemon-reload"))] if of_systemd and not read else []


def _place(seen: State) -> int:
    """Units that were not there end while their files are; those that were, start after.

    Swap is on before its unit is, which would turn it on too.
    """
    kind = seen.resource.kind
    if kind == "unit":
        return 5 if seen.exists else 0
    return {"file": 2, "module": 3, "swap": 4}.get(kind, 6)


def _one(
    seen: State, by_touch: Mapping[Resource, State], restarted: set[str]
) -> Iterable[AnyAction]:
    if seen.why:
        raise UndoError(f"{seen.resource.label}: what it was is not known: {seen.why}")
    if seen.resource.kind == "unit":
        return [_unit(seen, restart=seen.resource.name in restarted)]
    if seen.resource.kind == "gpu":
        return [_gpu(seen, by_touch)]
    if seen.resource.kind == "module":
        return _modules([each for each in by_touch.values() if each.resource.kind == "module"])
    if seen.resource.kind not in _UNDO:
        raise UndoError(
            f"{seen.resource.label}: nothing is known of putting back a {seen.resource.kind}"
        )
    return _UNDO[seen.resource.kind](seen)


def _file(seen: State) -> Sequence[WriteFile]:
    path = seen.resource.name
    if not seen.exists:
        return [WriteFile(path=path, content=None)]
    value = _mapping(seen)
    if "target" in value:
        raise UndoError(f"{seen.resource.label}: it is a symbolic link to {value['target']!r}")
    content = text_of(seen)
    if content is None:
        raise UndoError(f"{seen.resource.label}: its content is not UTF-8 text")
    mode, owner, group = (_int(seen, value.get(key)) for key in ("mode", "owner", "group"))
    return [WriteFile(path=path, content=content, mode=mode, owner=owner, group=group)]


def text_of(seen: State) -> str | None:
    """The content of a file that was seen; None where that is no UTF-8 text. Raises UndoError."""
    content = _mapping(seen).get("content")
    if not isinstance(content, str):
        raise UndoError(f"{seen.resource.label}: its content was not seen")
    try:
        return base64.b64decode(content, validate=True).decode("utf-8")
    except UnicodeDecodeError:
        return None
    except binascii.Error as error:
        raise UndoError(f"{seen.resource.label}: its content is no base64: {error}") from error


def _kernel(seen: State) -> Sequence[WriteKernel]:
    if not seen.exists:
        raise UndoError(f"{seen.resource.label}: there is no such file")
    if not isinstance(seen.value, str):
        raise UndoError(f"{seen.resource.label}: its value was not seen")
    return [WriteKernel(path=seen.resource.name, value=chosen(seen))]


def chosen(seen: State) -> str:
    """What to write to a kernel file: its text, or the word in brackets where it offers several."""
    text = str(seen.value).strip().replace("\t", " ")  # as sysctls of several numbers have them
    words = [word[1:-1] for word in text.split() if word[0] == "[" and word[-1] == "]"]
    if len(words) > 1:
        raise UndoError(f"{seen.resource.label}: {text!r} marks several words as chosen")
    if words:
        return words[0]
    if not text or "\n" in text:
        raise UndoError(f"{seen.resource.label}: {text!r} is nothing that can be written back")
    return text


def _unit(seen: State, *, restart: bool) -> SetUnit:
    if not seen.exists:
        return SetUnit(name=seen.resource.name, enabled=False, running=False)
    value = _mapping(seen)
    enabled = value.get("enabled")
    masked = bool(value.get("masked"))
    if enabled in _UNDONE:
        raise UndoError(f"{seen.resource.label}: it is {enabled}, which is not put back")
    running = value.get("active")
    if running in ("activating", "reloading", "deactivating"):
        raise UndoError(f"{seen.resource.label}: it is {running}: plan again when it has settled")
    running = _switch(seen, running)
    return SetUnit(
        name=seen.resource.name,
        enabled=None if masked else _enabled(enabled),
        running=running,
        restart=restart and running,
        masked=masked,
    )


def _enabled(value: Any) -> bool | None:
    """Whether a unit was enabled; None where it can be neither: static, generated, ..."""
    if isinstance(value, bool):
        return value
    return {"enabled": True, "disabled": False}.get(str(value))


def _gpu(seen: State, by_touch: Mapping[Resource, State]) -> RunCommand:
    uuid, _, field = seen.resource.name.rpartition(":")
    if not uuid:
        raise UndoError(f"{seen.resource.label}: names no GPU and field, as GPU-<uuid>:<field>")
    words: tuple[str, ...]
    if field in PAIRS or field in PAIRS.values():
        words = _pair(seen, field, uuid, by_touch)
    elif not seen.exists or seen.value is None:
        raise UndoError(f"{seen.resource.label}: the driver does not say what it is")
    elif field == "power_limit_mw":
        watts, milliwatts = divmod(_int(seen, seen.value), 1000)
        words = ("-pl", f"{watts}.{milliwatts:03}" if milliwatts else f"{watts}")
    elif field == "compute_mode":
        if str(seen.value) not in _MODES:
            raise UndoError(f"{seen.resource.label}: {seen.value!r} is no compute mode")
        words = ("-c", _MODES[str(seen.value)])
    elif field in _SWITCHES:
        words = (_SWITCHES[field], "1" if _switch(seen, seen.value) else "0")
    else:
        raise UndoError(f"{seen.resource.label}: nothing is known of putting back {field}")
    return RunCommand(words=("nvidia-smi", "-i", uuid, *words))


def _pair(
    seen: State, field: str, uuid: str, by_touch: Mapping[Resource, State]
) -> tuple[str, ...]:
    """Both fields of a pair as one command; without values, the command that resets them."""
    first = field if field in PAIRS else next(one for one, other in PAIRS.items() if other == field)
    both = [
        by_touch.get(Resource(kind="gpu", name=f"{uuid}:{each}")) for each in (first, PAIRS[first])
    ]
    told = [each for each in both if each is not None and each.exists and each.value is not None]
    set_them, reset = _PAIR_COMMANDS[first]
    if not told:
        return (reset,)
    if len(told) < len(both):
        raise UndoError(f"{seen.resource.label}: {first} and {PAIRS[first]} are put back together")
    return (set_them, ",".join(str(_int(each, each.value)) for each in told))


def _modules(seen: Sequence[State]) -> list[RunCommand]:
    """Modules that were loaded, and then away with those that were not, whatever came along.

    `modprobe -r` would also unload what was there before and that nothing else uses.
    """
    runs: list[RunCommand] = []
    order: dict[str, None] = {}  # in which they were loaded
    for each in seen:
        if each.why:
            raise UndoError(f"{each.resource.label}: what it was is not known: {each.why}")
        value = _mapping(each)
        names = [*(value.get("brings") or ()), each.resource.name]
        if wrong := [name for name in names if not _MODULE.fullmatch(str(name))]:
            raise UndoError(f"{each.resource.label}: {wrong[0]!r} is no name of a module")
        if _switch(each, value.get("loaded")):
            runs.append(RunCommand(words=("modprobe", "--", each.resource.name)))
        else:
            order.update(dict.fromkeys(name.replace("-", "_") for name in names))
    return runs + [
        RunCommand(words=("sh", "-c", _UNLOAD, "rmmod", name)) for name in reversed(order)
    ]


def _packages(seen: Sequence[State], actions: Actions) -> list[RunCommand]:
    """Packages in one transaction, for they depend on one another; then what held them.

    Only where the step itself used apt-get: the versions come from the node's repositories.
    """
    if not seen:
        return []
    if not any("apt-get" in action.words for action in actions if isinstance(action, RunCommand)):
        raise UndoError(f"{seen[0].resource.label}: only what apt-get installed is put back")
    wanted: list[str] = []
    held: list[str] = []
    free: list[str] = []
    came_along: list[str] = []
    for each in sorted(seen, key=lambda each: each.resource.name):
        name = each.resource.name
        if each.why:
            raise UndoError(f"{each.resource.label}: what it was is not known: {each.why}")
        if not each.exists:
            wanted.append(f"{name}-")  # apt-get's way to remove a package while it installs
            continue
        value = _mapping(each)
        version = value.get("version")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise UndoError(f"{each.resource.label}: {version!r} is no version")
        wanted.append(f"{name}={version}")
        (held if value.get("held") else free).append(name)
        came_along += [name] if value.get("automatic") else []
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")
    options = (
        *("-y", "--allow-downgrades", "--allow-change-held-packages", "--purge"),
        *("--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"),
        *("-o", f"DPkg::Lock::Timeout={_APT_LOCK}"),
    )
    marks = [("auto", came_along), ("hold", held), ("unhold", free)]
    return [
        # where dpkg was killed apt-get does nothing before this
        RunCommand(
            words=(*quiet, "dpkg", "--force-confold", "--configure", "-a"), seconds=_APT_SECONDS
        ),
        RunCommand(words=(*quiet, "apt-get", *options, "install", *wanted), seconds=_APT_SECONDS),
        *(RunCommand(words=("apt-mark", mark, *names)) for mark, names in marks if names),
    ]


def _process(seen: State) -> Sequence[RunCommand]:
    """The CPUs of a process and of each thread that differs; one that was not there has ended.

    Which memory it may use is its cgroup's, and no action changes that.
    """
    if not seen.exists:
        return []
    value = _mapping(seen)
    found = [
        RunCommand(
            words=("taskset", "-a", "-p", "-c", _cpus(seen, value), _pid(seen.resource.name))
        )
    ]
    threads = value.get("threads") or {}
    if not isinstance(threads, Mapping):
        raise UndoError(f"{seen.resource.label}: its threads were not seen")
    for thread, bound in sorted(threads.items()):
        found.append(
            RunCommand(words=("taskset", "-p", "-c", _cpus(seen, bound), _pid(str(thread))))
        )
    return found


def _pid(text: str) -> str:
    if not (text.isascii() and text.isdecimal()):
        raise UndoError(f"process {text}: not a process id")
    return text


def _cpus(seen: State, bound: Any) -> str:
    cpus = bound.get("cpus") if isinstance(bound, Mapping) else None
    if not isinstance(cpus, str) or not _LIST.fullmatch(cpus):
        raise UndoError(f"{seen.resource.label}: {cpus!r} is no list of CPUs")
    return cpus


def _swap(seen: State) -> Sequence[RunCommand]:
    """Its lines in /etc/fstab are that file's. A priority below zero is the kernel's choice."""
    value = _mapping(seen)
    if seen.resource.name == "all":
        return [
            RunCommand(words=("swapon" if _switch(seen, value.get("active")) else "swapoff", "-a"))
        ]
    if not _switch(seen, value.get("active")):
        return [RunCommand(words=("swapoff", "--", seen.resource.name))]
    options: tuple[str, ...] = ()
    priority = value.get("priority")
    if isinstance(priority, int) and priority >= 0:
        options += ("-p", str(priority))
    lines = value.get("fstab") or ()
    if discard := _DISCARD.search(str(lines[0])) if lines else None:
        options += (f"--{discard[1]}",)
    return [RunCommand(words=("swapon", *options, "--", seen.resource.name))]


_UNDO: Mapping[str, Callable[[State], Sequence[AnyAction]]] = {
    "file": _file,
    "kernel": _kernel,
    "process": _process,
    "swap": _swap,
}


def _mapping(seen: State) -> Mapping[str, Any]:
    if not isinstance(seen.value, Mapping):
        raise UndoError(
            f"{seen.resource.label}: what was seen of it makes no sense: {seen.value!r}"
        )
    return seen.value


def _int(seen: State, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise UndoError(f"{seen.resource.label}: {value!r} is no number")
    return int(text)


def _switch(seen: State, value: Any) -> bool:
    """On or off, however it was said."""
    text = str(value).lower()
    if text in _ON or text in _OFF:
        return text in _ON
    raise UndoError(f"{seen.resource.label}: {value!r} is neither on nor off")
