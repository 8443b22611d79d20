"""A kernel module."""

import os
import re

from nodevet.remote.look import absent, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import path_under, text_lines
from nodevet.remote.program import ToolError, find_program, run

MODULE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
INSMOD = re.compile(r"insmod\s+(?:\S*/)?([A-Za-z0-9_-]{1,64})\.ko(?:\.\w+)?(?:\s|\Z)")


def look(root: str, name: str) -> "dict[str, object]":
    """{loaded, brings: other unloaded modules that modprobe(8) would load with it}."""
    if not MODULE.match(name):
        raise ValueError("not a valid module name")
    if not os.path.isdir(path_under(root, "/sys/module")):
        return unknown("no /sys/module")
    if is_loaded(root, name):
        return present({"loaded": True, "brings": []})
    brings = [other for other in required_modules(root, name) if not is_loaded(root, other)]
    return absent({"loaded": False, "brings": brings})


def is_loaded(root: str, name: str) -> bool:
    return os.path.isdir(path_under(root, "/sys/module/" + kernel_name(name)))


def required_modules(root: str, name: str) -> "list[str]":
    """The modules that modprobe(8) loads first, in its order. Raises ToolError."""
    if root != "/":
        return []
    code, text, _ = run((find_program("modprobe"), "--show-depends", "--", name))
    if code != 0:
        raise ToolError("modprobe finds no such module for the running kernel")
    modules = [kernel_name(file.group(1)) for file in map(INSMOD.match, text_lines(text)) if file]
    return [other for other in modules if other != kernel_name(name)]


def kernel_name(name: str) -> str:
    """A module's name in /sys/module."""
    return name.replace("-", "_")


def patterns(root: str, name: str) -> "Patterns":
    """What loads a loaded module again, or removes or blocks an unloaded one."""
    loaded = is_loaded(root, name)
    name_pattern = re.sub("[-_]", "[-_]", name)
    verb = r"(?:modprobe(?!\s+(?:-r|--remove))|insmod)" if loaded else r"(?:modprobe\s+-r|rmmod)"
    words = r"\b{}\b.*(?<![\w-]){}(?![\w-])".format(verb, name_pattern)
    return Patterns(words, module=name_pattern, loaded=loaded)
