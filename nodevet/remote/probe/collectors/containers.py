"""What gives containers their GPUs: NVIDIA's toolkit, CDI specifications, configured engines.

Files only: no engine is asked and nothing is run. /etc/docker/daemon.json, the configurations of
containerd (k3s and RKE2 have their own) and CRI-O, hooks of Podman and Enroot, /etc/cdi,
/var/run/cdi, /etc/nvidia-container-runtime/config.toml.
"""

import fnmatch
import os

from nodevet.remote.probe.cdi import specifications
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    exists,
    names,
    path_under,
    read,
    reason,
    tell_missing,
)
from nodevet.remote.probe.toml_rows import mentions, rows, single

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/bin", "/snap/bin")
TOOLKITS = ("/usr/local/nvidia/toolkit", "/run/current-system/sw/bin", "/opt/nvidia/toolkit")
TOOLS = (
    "nvidia-ctk",
    "nvidia-container-runtime",
    "nvidia-container-cli",
    "nvidia-container-runtime-hook",
    "nvidia-cdi-hook",
)
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
DOCKER = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
RANCHER = "/var/lib/rancher/{}/agent/etc/containerd/config.toml"
CRIO = "/etc/crio/crio.conf"
CRIO_FOLDER = "/etc/crio/crio.conf.d"
PODMAN_HOOKS = (
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
ENROOT_HOOKS = ("/etc/enroot/hooks.d/98-nvidia.sh", "/usr/share/enroot/hooks.d/98-nvidia.sh")
IMPORTED = 64  # files
ANSWERS = ("runtime", "default_runtime", "program", "program_exists", "cdi", "hook")


def listed(root: str, folder: str) -> "list[str]":
    """The names in a folder; none if it is not there. Raises OSError, ValueError."""
    try:
        return names(root, folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def located(root: str, program: str) -> "str | None":
    """The path of a program; None if it is in none of the usual folders. Raises NotHeld."""
    places = [folder + "/" + program for folder in FOLDERS + TOOLKITS]
    for path in places:
        if os.path.exists(path_under(root, path)):
            return path
    tell_missing(root, places[0])
    return None


def engine(name: str, **answers: object) -> "Reading":
    """What is configured of an engine; see nodevet.evidence.containers.Engine."""
    empty: "dict[str, object]" = dict.fromkeys(ANSWERS, False)
    empty["program"] = ""
    empty.update(answers)
    return Reading(name=name, **empty)


def unread(name: str, why: str) -> "Reading":
    record = Reading(name=name)
    record.fail_all(ANSWERS, why)
    return record


def with_program(root: str, record: "Reading", program: str) -> "Reading":
    """Add which program the runtime is and whether it is there."""
    record["program"] = program[:1000]
    if program.startswith("/"):
        record["program_exists"] = exists(root, program)
    else:
        record["program_exists"] = bool(program) and located(root, program) is not None
    return record


def is_nvidia(name: str) -> bool:
    """Whether a runtime is NVIDIA's: the operator has nvidia-cdi and nvidia-legacy besides."""
    return name == "nvidia" or name.startswith("nvidia-")


def parse_docker(text: str) -> "tuple[dict[str, str], str, bool]":
    """(runtimes with their programs, the default one, CDI). Raises ValueError."""
    import json

    found = json.loads(text) if text.strip() else {}
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    runtimes = found.get("runtimes")
    runtimes = runtimes if isinstance(runtimes, dict) else {}
    programs = {
        name: str(each.get("path", "")) if isinstance(each, dict) else ""
        for name, each in runtimes.items()
        if is_nvidia(name)
    }
    features = found.get("features")
    has_cdi = isinstance(features, dict) and features.get("cdi") is True
    return programs, str(found.get("default-runtime", "")), has_cdi


def docker(root: str) -> "Reading | None":
    if not located(root, "dockerd"):
        return None
    text, why = attempt(read, root, DOCKER)
    if text is None and why != "ENOENT":
        return unread("docker", why)
    found, why = attempt(parse_docker, text or "")
    if found is None:
        return unread("docker", "{}: {}".format(DOCKER, why))
    programs, default, has_cdi = found
    record = engine(
        "docker",
        runtime=bool(programs),
        default_runtime=is_nvidia(default),
        cdi=has_cdi,
        # `docker run --gpus` needs no runtime, but this program
        hook=located(root, "nvidia-container-runtime-hook") is not None,
    )
    return with_program(root, record, programs[sorted(programs)[0]]) if programs else record


def imported(root: str, folder: str, patterns: "Iterable[str]") -> "list[str]":
    """The texts of the files that a configuration imports. Raises OSError, ValueError."""
    texts: "list[str]" = []
    for pattern in patterns:
        place, _, name = (
            pattern if pattern.startswith("/") else folder + "/" + pattern
        ).rpartition("/")
        files = fnmatch.filter(listed(root, place or "/"), name)
        if len(texts) + len(files) > IMPORTED:
            raise ValueError("more than {} files are imported".format(IMPORTED))
        texts += [read(root, place + "/" + each) for each in sorted(files)]
    return texts


def parse_engine(
    texts: "Sequence[str]", tables: "tuple[str, str, str | None, tuple[str, ...]]"
) -> "tuple[dict[str, str], str, bool | None]":
    """(programs by runtime, the default runtime, CDI or None) of TOML. Raises ValueError.

    `tables`: the end of the key above the runtimes, that of the default, that of CDI.
    """
    runtimes, default_key, cdi_key, program_keys = tables
    programs: "dict[str, str]" = {}
    default, has_cdi = "", None
    for text in texts:
        for key, value in rows(text):
            at = len(key) - 1
            while at > 0 and key[at - 1] != runtimes:
                at -= 1
            if at > 0 and is_nvidia(key[at]):
                programs.setdefault(key[at], "")
                if key[-1] in program_keys and len(key) > at + 1:
                    programs[key[at]] = single(value)
            elif key and key[-1] == default_key:
                default = single(value)
            elif key and key[-1] == cdi_key:
                has_cdi = value == "true"
    if not programs and any(mentions(text, "nvidia") for text in texts):
        raise ValueError("it mentions nvidia in a way that is not understood")
    return programs, default, has_cdi


OF_CONTAINERD = ("runtimes", "default_runtime_name", "enable_cdi", ("BinaryName",))
OF_CRIO = ("runtimes", "default_runtime", None, ("runtime_path",))


def containerd(root: str, name: str, path: str) -> "Reading":
    """An engine that is containerd."""
    text, why = attempt(read, root, path)
    if text is None:
        return engine(name) if why == "ENOENT" else unread(name, "{}: {}".format(path, why))
    texts, why = attempt(whole, root, path, text)
    found, why = attempt(parse_engine, texts, OF_CONTAINERD) if texts else (None, why)
    if found is None:
        return unread(name, "{}: {}".format(path, why))
    programs, default, has_cdi = found
    versions = [value for key, value in rows(text) if key == ("version",)]
    if has_cdi is None:
        has_cdi = versions == ["3"]  # of containerd 2: on unless it is turned off
    record = engine(name, runtime=bool(programs), default_runtime=is_nvidia(default), cdi=has_cdi)
    chosen = default if default in programs else "nvidia"
    return with_program(root, record, programs.get(chosen, "")) if programs else record


def whole(root: str, path: str, text: str) -> "list[str]":
    """A configuration with what it imports. Raises OSError, ValueError."""
    patterns = [
        pattern
        for key, value in rows(text)
        if key == ("imports",) and isinstance(value, list)
        for pattern in value
    ]
    return [text] + imported(root, os.path.dirname(path), patterns)


def crio(root: str) -> "Reading | None":
    if not located(root, "crio"):
        return None
    try:
        files = [CRIO] if exists(root, CRIO) else []
        own = [each for each in listed(root, CRIO_FOLDER) if not each.startswith(".")]
        if len(own) > IMPORTED:
            raise ValueError("more than {} files in {}".format(IMPORTED, CRIO_FOLDER))
        files += [CRIO_FOLDER + "/" + each for each in own]
        programs, default, _ = parse_engine([read(root, each) for each in files], OF_CRIO)
    except (OSError, ValueError) as error:
        return unread("crio", reason(error))
    record = engine("crio", runtime=bool(programs), default_runtime=is_nvidia(default), cdi=True)
    return with_program(root, record, programs.get("nvidia", "")) if programs else record


def podman(root: str) -> "Reading | None":
    if not located(root, "podman"):
        return None
    return engine("podman", cdi=True, hook=any(exists(root, path) for path in PODMAN_HOOKS))


def enroot(root: str) -> "Reading | None":
    if not located(root, "enroot"):
        return None
    hooks = [path_under(root, path) for path in ENROOT_HOOKS]
    return engine("enroot", hook=any(os.access(path, os.X_OK) for path in hooks))


def engines(root: str) -> "list[Reading]":
    """Every engine that is installed."""
    found = [docker(root), crio(root), podman(root), enroot(root)]
    if located(root, "containerd"):
        found.append(containerd(root, "containerd", CONTAINERD))
    for name in ("k3s", "rke2"):
        path = RANCHER.format(name)
        if exists(root, path):
            found.append(containerd(root, name, path))
    return [each for each in found if each is not None]


def mode(root: str) -> str:
    """That of NVIDIA's runtime; auto if it is not configured. Raises OSError, ValueError."""
    try:
        text = read(root, TOOLKIT_CONFIG)
    except FileNotFoundError:
        return ""
    found = [value for key, value in rows(text) if key == ("nvidia-container-runtime", "mode")]
    return str(found[-1])[:100] if found else "auto"


def toolkit(root: str) -> str:
    """The path of its program; empty if it is not installed. Raises NotHeld."""
    tools = (located(root, name) for name in TOOLS)
    return next((path for path in tools if path), "")


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    found = Reading()
    found.take("toolkit", toolkit, root)
    found.take("mode", mode, root)
    found.take("engines", engines, root)
    found.take("specifications", specifications, root)
    return found
