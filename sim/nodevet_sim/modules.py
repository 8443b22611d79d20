"""The kernel modules of a described node: which there are, and what loads each. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from nodevet_sim.description import Content, ModuleEntry

How = Literal["device", "boot", "available", "builtin", "none"]
"""A scenario's wish for a module: loaded for a device of the machine unless it is blacklisted;
loaded by the initramfs; present but not loaded; part of the kernel; absent.
"""

NAME = re.compile(r"[A-Za-z0-9_]{1,56}")
SIZE = 16384  # bytes
NEEDS = {
    "gdrdrv": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset",),
    "nvidia_fs": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_peermem": ("nvidia",),
    "nvidia_uvm": ("nvidia",),
}
OF_KERNEL = ("nouveau",)
OF_DRIVER = ("nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")
"""Installed with the kernel and with NVIDIA's driver, whether they are loaded or not."""


def rows(loaded: Collection[str]) -> str:
    """/proc/modules with these modules loaded, in this order."""
    text = ""
    for name in loaded:
        holders = [other for other in loaded if name in NEEDS.get(other, ())]
        by = "".join(f"{other}," for other in holders) or "-"
        text += f"{name} {SIZE} {len(holders)} {by} Live 0x0000000000000000\n"
    return text


def described(
    files: Mapping[str, Content], wishes: Mapping[str, How]
) -> tuple[dict[str, Content], tuple[ModuleEntry, ...]]:
    """The files with the modules' own files, and the modules.

    What is loaded is in /proc/modules, what is built in has a folder in /sys/module only;
    `wishes` go before both.
    """
    loaded = dict(_loaded_modules(files))
    there = (*OF_KERNEL, *(OF_DRIVER if "nvidia" in loaded else ()))
    for name in there:
        if not any(path.startswith(f"sys/module/{name}/") for path in files):
            loaded.setdefault(name, ModuleEntry(name, "available"))
    unloaded = {name for name, how in wishes.items() if how in ("builtin", "none")}
    for name, how in wishes.items():
        if how in ("device", "boot", "available"):
            before = loaded.get(name)
            loaded[name] = ModuleEntry(name, how, *((before.size, before.users) if before else ()))
    needs = _needs(files)
    modules = tuple(
        ModuleEntry(
            module.name, module.how, module.size, module.users, tuple(sorted(needs.get(name, ())))
        )
        for name, module in loaded.items()
        if name not in unloaded
    )
    kept = {path: text for path, text in files.items() if _folder(path) not in unloaded}
    for module in modules:
        kept.setdefault(f"sys/module/{module.name}/initstate", "live\n")
    for name, how in wishes.items():
        if how == "builtin":
            kept[f"sys/module/{name}/uevent"] = ""
    return kept, modules


def module_list(modules: Collection[ModuleEntry]) -> str:
    """The simulated kernel's own list of them; see kernelfs/modules.c."""
    return "".join(
        f"{module.name} {module.how} {','.join(module.needs) or '-'} {module.size} {module.users}\n"
        for module in modules
    )


def _folder(path: str) -> str | None:
    """The module that a file of /sys/module is of."""
    match = re.match(r"sys/module/([^/]+)/", path)
    return match[1] if match else None


def _fields(files: Mapping[str, Content]) -> Iterator[list[str]]:
    content = files.get("proc/modules", "")
    text = content.decode("ascii", "replace") if isinstance(content, bytes) else content
    for row in text.splitlines():
        fields = row.split()
        if len(fields) > 3 and NAME.fullmatch(fields[0]) and (fields[1] + fields[2]).isdecimal():
            yield fields


def _loaded_modules(files: Mapping[str, Content]) -> Iterator[tuple[str, ModuleEntry]]:
    for name, size, count, by, *_ in _fields(files):
        users = max(0, int(count) - len(_names(by)))
        yield name, ModuleEntry(name, "device", min(int(size), 1 << 30), min(users, 1 << 30))


def _names(by: str) -> list[str]:
    """
    >>> _names("nvidia_uvm,nvidia_modeset,"), _names("[permanent],"), _names("-")
    (['nvidia_uvm', 'nvidia_modeset'], [], [])
    """
    return [name for name in by.split(",") if NAME.fullmatch(name)]


def _needs(files: Mapping[str, Content]) -> dict[str, set[str]]:
    """What each module needs: as /proc/modules has it of those that are loaded."""
    needs_by_module = {name: set(needs) for name, needs in NEEDS.items()}
    for name, _, _, by, *_ in _fields(files):
        for other in _names(by):
            needs_by_module.setdefault(other, set()).add(name)
    return needs_by_module
