"""A kernel module."""

import os
import re

from nodevet.remote.look import absent, seen, unseen
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import path_under
from nodevet.remote.program import ToolError, find, run

MODULE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
INSMOD = re.compile(r"insmod\s+(?:\S*/)?([A-Za-z0-9_-]{1,64})\.ko(?:\.\w+)?(?:\s|\Z)")


def look(root: str, name: str) -> "dict[str, object]":
    """{loaded, brings: the others that are not, and that modprobe(8) would load with it}."""
    if not MODULE.match(name):
        raise ValueError("not a valid module name")
    if not os.path.isdir(path_under(root, "/sys/module")):
        return unseen("no /sys/module")
    if is_loaded(root, name):
        return seen({"loaded": True, "brings": []})
    brings = [other for other in needed(root, name) if not is_loaded(root, other)]
    return absent({"loaded": False, "brings": brings})


def is_loaded(root: str, name: str) -> bool:
    return os.path.isdir(path_under(root, "/sys/module/" + spelt(name)))


def needed(root: str, name: str) -> "list[str]":
    """The modules that are loaded before this one, in this order. Raises ToolError."""
    if root != "/":
        return []
    code, text, _ = run((find("modprobe"), "--show-depends", "--", name))
    if code != 0:
        raise ToolError("modprobe finds no such module for the running kernel")
    found = [spelt(file.group(1)) for file in map(INSMOD.match, text.splitlines()) if file]
    return [other for other in found if other != spelt(name)]


def spelt(name: str) -> str:
    """As the kernel has it in /sys/module."""
    return name.replace("-", "_")


def patterns(root: str, name: str) -> "Patterns":
    """Who would bring back what it is now: who loads one that is loaded, or keeps one out."""
    loaded = is_loaded(root, name)
    either = re.sub("[-_]", "[-_]", name)
    verb = r"(?:modprobe(?!\s+(?:-r|--remove))|insmod)" if loaded else r"(?:modprobe\s+-r|rmmod)"
    words = r"\b{}\b.*(?<![\w-]){}(?![\w-])".format(verb, either)
    return Patterns(words, module=either, loaded=loaded)
