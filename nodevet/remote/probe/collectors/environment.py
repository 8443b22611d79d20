"""Variables that CUDA, NCCL and the loader act on, where the node sets them for every process.

/etc/environment, /etc/environment.d, /etc/profile and /etc/profile.d, bash's own files,
/etc/nccl.conf, /etc/ld.so.preload, systemd's DefaultEnvironment; and the environment of the units
that a baseline names. Of no other variable is anything sent, and of one that may hold a secret only
its name.
"""

import re

from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    attempt,
    hold_etc,
    names,
    quote,
    read,
    silent,
)
from nodevet.remote.systemd import show, unit_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES = (
    "/etc/environment",
    "/etc/profile",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/nccl.conf",
    "/etc/systemd/system.conf",
)
FOLDERS = (
    ("/etc/profile.d", ".sh"),
    ("/etc/environment.d", ".conf"),
    ("/usr/lib/environment.d", ".conf"),
    ("/etc/systemd/system.conf.d", ".conf"),
    ("/usr/lib/systemd/system.conf.d", ".conf"),
)
PRELOAD = "/etc/ld.so.preload"
MOST = 500  # variables
MOST_FILES = 256  # in one folder
LONGEST = 4096  # characters of a row, or of a value
TOO_LONG = "longer than {} characters".format(LONGEST)
FAMILY = (
    r"(?:(?:CUDA|NCCL|NVIDIA|NVSHMEM|UCX|TORCH|PYTORCH|GLOO)_[A-Z0-9_]{1,80}"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|LD_AUDIT|COMPUTE_PROFILE|OPENCL_PROFILE|NSIGHT_CUDA_DEBUGGER"
    r"|OMP_NUM_THREADS)"
)
ASSIGNED = re.compile(
    r"(?:^|[\s;&|\"'(])(" + FAMILY + r")=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;&|\"']*)"
)
COMMENT = re.compile(r"^((?:[^\"'#]|\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?<!\s)#)*)\s#.*")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH")
UNIT = unit_names("service", "socket", "timer", "slice", "mount")
UNIT_FILE = re.compile(r"(/\S+) \(ignore_errors=(?:yes|no)\)")


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Units are asked of systemd."""
    return bool(request.get("asks", {}).get("environment"))


def assignments(row: str) -> "list[tuple[str, str]]":
    """(name, value) of every variable of these families that a row sets.

    >>> assignments("export CUDA_CACHE_DISABLE='1' # NCCL_DEBUG=1")
    [('CUDA_CACHE_DISABLE', '1')]
    """
    if row.lstrip().startswith("#"):
        return []
    return [(name, bare(value)) for name, value in ASSIGNED.findall(COMMENT.sub(r"\1", row))]


def bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def variable(name: str, value: str, place: str) -> "Reading":
    record = Reading(name=name, place=place[:1000])
    if SECRET.search(name):
        record.fail("value", "not read: it may hold a secret")
    elif len(value) > LONGEST:
        record.fail("value", TOO_LONG)
    else:
        record["value"] = value
    return record


def of_text(text: str, path: str) -> "tuple[list[Reading], list[str]]":
    """(the variables that a file sets, the rows that are too long to be read)."""
    found, unread = [], []
    for number, row in enumerate(text.split("\n"), 1):
        place = "{}:{}".format(path, number)
        if len(row) > LONGEST:
            unread.append("{}: {}".format(place, TOO_LONG))
        elif "=" in row:
            found += [variable(name, value, place) for name, value in assignments(row)]
    return found, unread


def of_preload(text: str) -> "list[Reading]":
    rows = [row.split("#", 1)[0].strip() for row in text.split("\n")]
    return [
        variable(PRELOAD, row, "{}:{}".format(PRELOAD, number))
        for number, row in enumerate(rows, 1)
        if row
    ]


def paths(root: str) -> "tuple[list[str], list[str]]":
    """Every file to be read, and why a folder was not listed."""
    found, unread = list(FILES), []
    for folder, ending in FOLDERS:
        listed, why = attempt(names, root, folder, MOST_FILES)
        if listed is None and why not in ("ENOENT", "ENOTDIR"):
            unread.append("{}: {}".format(folder, why))
        found += [folder + "/" + name for name in listed or () if name.endswith(ending)]
    return found, unread


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    asked = sorted(set(request.get("asks", {}).get("environment", ())))
    hold_etc(root)
    files, unread = paths(root)
    variables = []
    for path in files + [PRELOAD]:
        text, why = attempt(read, root, path)
        if text is not None and path == PRELOAD:
            variables += of_preload(text)
        elif text is not None:
            found, too_long = of_text(text, path)
            variables += found
            unread += too_long
        elif why not in ("ENOENT", "ENOTDIR"):
            unread.append("{}: {}".format(path, why))
    units = []
    for name in asked:
        note(name)
        record = Reading(name=name)
        record.take("variables", of_unit, root, name)
        units.append(record)
    if len(variables) > MOST:
        raise SectionError("more than {} variables are set".format(MOST))
    return Reading(variables=variables, unread="; ".join(unread)[:2000], units=units)


def of_unit(root: str, name: str) -> "list[Reading]":
    """The variables of a unit's environment, files included. Raises OSError, ValueError."""
    if not UNIT.match(name):
        raise ValueError("not a valid systemd unit name")
    if root != "/":
        raise ValueError("systemd is queried on a running machine only")
    try:
        (shown,) = show([name], ("Id", "Names", "LoadState", "Environment", "EnvironmentFiles"))
    except SectionError as error:
        raise ValueError(str(error))
    if name not in [shown.get("Id")] + shown.get("Names", "").split(" "):
        raise ValueError("systemctl answered for " + quote(shown.get("Id", "")))
    if shown.get("LoadState") != "loaded":
        raise ValueError("the unit is not loaded: " + quote(shown.get("LoadState", "")))
    found = [variable(key, value, name) for key, value in assignments(shown.get("Environment", ""))]
    for path in UNIT_FILE.findall(shown.get("EnvironmentFiles", "")):
        more, too_long = of_text(read(root, path), path)
        found += more
        if too_long:
            raise ValueError(too_long[0])
    if len(found) > MOST:
        raise ValueError("more than {} variables are set".format(MOST))
    return found
