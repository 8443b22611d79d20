"""Variables for CUDA, NCCL and the loader that the node sets for every process.

/etc/environment, /etc/environment.d, /etc/profile and /etc/profile.d, bash's own files,
/etc/nccl.conf, /etc/ld.so.preload, systemd's DefaultEnvironment; and the environment of the units
that a baseline names. The evidence holds no other variable, and only the name of one that may hold
a secret.
"""

import re

from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    attempt,
    hold_etc,
    names,
    no_note,
    quote,
    read,
)
from nodevet.remote.systemd import show, unit_name_pattern

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
ASSIGNMENT = re.compile(
    r"(?:^|[\s;&|\"'(])(" + FAMILY + r")=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;&|\"']*)"
)
COMMENT = re.compile(r"^((?:[^\"'#]|\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?<!\s)#)*)\s#.*")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH")
UNIT = unit_name_pattern("service", "socket", "timer", "slice", "mount")
UNIT_FILE = re.compile(r"(/\S+) \(ignore_errors=(?:yes|no)\)")


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """systemd may hang."""
    return bool(request.get("asks", {}).get("environment"))


def assignments(row: str) -> "list[tuple[str, str]]":
    """(name, value) of each variable of FAMILY that a row sets.

    >>> assignments("export CUDA_CACHE_DISABLE='1' # NCCL_DEBUG=1")
    [('CUDA_CACHE_DISABLE', '1')]
    """
    if row.lstrip().startswith("#"):
        return []
    return [(name, unquoted(value)) for name, value in ASSIGNMENT.findall(COMMENT.sub(r"\1", row))]


def unquoted(value: str) -> str:
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


def variables_of_text(text: str, path: str) -> "tuple[list[Reading], list[str]]":
    """(the variables that a file sets, its rows that are too long)."""
    variables, unread_rows = [], []
    for number, row in enumerate(text.split("\n"), 1):
        place = "{}:{}".format(path, number)
        if len(row) > LONGEST:
            unread_rows.append("{}: {}".format(place, TOO_LONG))
        elif "=" in row:
            variables += [variable(name, value, place) for name, value in assignments(row)]
    return variables, unread_rows


def variables_of_preload(text: str) -> "list[Reading]":
    rows = [row.split("#", 1)[0].strip() for row in text.split("\n")]
    return [
        variable(PRELOAD, row, "{}:{}".format(PRELOAD, number))
        for number, row in enumerate(rows, 1)
        if row
    ]


def paths(root: str) -> "tuple[list[str], list[str]]":
    """(the files to read, why folders could not be listed)."""
    files, problems = list(FILES), []
    for folder, suffix in FOLDERS:
        entries, why = attempt(names, root, folder, MOST_FILES)
        if entries is None and why not in ("ENOENT", "ENOTDIR"):
            problems.append("{}: {}".format(folder, why))
        files += [folder + "/" + name for name in entries or () if name.endswith(suffix)]
    return files, problems


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    unit_names = sorted(set(request.get("asks", {}).get("environment", ())))
    hold_etc(root)
    files, problems = paths(root)
    variables = []
    for path in files + [PRELOAD]:
        text, why = attempt(read, root, path)
        if text is not None and path == PRELOAD:
            variables += variables_of_preload(text)
        elif text is not None:
            found_variables, too_long = variables_of_text(text, path)
            variables += found_variables
            problems += too_long
        elif why not in ("ENOENT", "ENOTDIR"):
            problems.append("{}: {}".format(path, why))
    units = []
    for name in unit_names:
        note(name)
        record = Reading(name=name)
        record.take("variables", variables_of_unit, root, name)
        units.append(record)
    if len(variables) > MOST:
        raise SectionError("more than {} variables are set".format(MOST))
    return Reading(variables=variables, unread="; ".join(problems)[:2000], units=units)


def variables_of_unit(root: str, name: str) -> "list[Reading]":
    """The variables of a unit's environment, files included. Raises OSError, ValueError."""
    if not UNIT.match(name):
        raise ValueError("not a valid systemd unit name")
    if root != "/":
        raise ValueError("systemd is queried on a running machine only")
    try:
        (properties,) = show(
            [name], ("Id", "Names", "LoadState", "Environment", "EnvironmentFiles")
        )
    except SectionError as error:
        raise ValueError(str(error))
    if name not in [properties.get("Id")] + properties.get("Names", "").split(" "):
        raise ValueError("systemctl answered for " + quote(properties.get("Id", "")))
    if properties.get("LoadState") != "loaded":
        raise ValueError("the unit is not loaded: " + quote(properties.get("LoadState", "")))
    variables = [
        variable(key, value, name) for key, value in assignments(properties.get("Environment", ""))
    ]
    for path in UNIT_FILE.findall(properties.get("EnvironmentFiles", "")):
        file_variables, too_long = variables_of_text(read(root, path), path)
        variables += file_variables
        if too_long:
            raise ValueError(too_long[0])
    if len(variables) > MOST:
        raise ValueError("more than {} variables are set".format(MOST))
    return variables
