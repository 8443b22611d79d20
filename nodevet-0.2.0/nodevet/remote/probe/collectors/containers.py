"""What gives containers their GPUs: NVIDIA's toolkit, CDI specifications, configured engines.

It reads files only, and runs nothing: /etc/docker/daemon.json, the configurations of
containerd (k3s and RKE2 have their own) and CRI-O, hooks of Podman and Enroot, /etc/cdi,
/var/run/cdi, /etc/nvidia-container-runtime/config.toml.
"""

import fnmatch
import os

from nodevet.remote.probe.cdi import specifications
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    check_held,
    exists,
    names_or_empty,
    path_under,
    read,
    reason,
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
MOST_IMPORTED = 64  # files
ANSWERS = ("runtime", "default_runtime", "program", "program_exists", "cdi", "hook")


def find_program(root: str, program: str) -> "str | None":
    """The path of a program in the usual folders, or None. Raises NotHeld."""
    paths = [folder + "/" + program for folder in FOLDERS + TOOLKITS]
    for path in paths:
        if os.path.exists(path_under(root, path)):
            return path
    check_held(root, paths[0])
    return None


def engine(name: str, **answers: object) -> "Reading":
    """The record of an engine: nodevet.evidence.containers.Engine."""
    empty: "dict[str, object]" = dict.fromkeys(ANSWERS, False)
    empty["program"] = ""
    empty.update(answers)
    return Reading(name=name, **empty)


def unreadable(name: str, why: str) -> "Reading":
    record = Reading(name=name)
    record.fail_all(ANSWERS, why)
    return record


def with_program(root: str, record: "Reading", program: str) -> "Reading":
    """Add the runtime's program and whether it exists."""
    record["program"] = program[:1000]
    if program.startswith("/"):
        record["program_exists"] = exists(root, program)
    else:
        record["program_exists"] = bool(program) and find_program(root, program) is not None
    return record


def is_nvidia(name: str) -> bool:
    """Whether a runtime is NVIDIA's; the operator adds nvidia-cdi and nvidia-legacy."""
    return name == "nvidia" or name.startswith("nvidia-")


def parse_docker(text: str) -> "tuple[dict[str, str], str, bool]":
    """({runtime: program}, default runtime, CDI). Raises ValueError."""
    import json

    config = json.loads(text) if text.strip() else {}
    if not isinstance(config, dict):
        raise ValueError("not a JSON object")
    runtimes = config.get("runtimes")
    runtimes = runtimes if isinstance(runtimes, dict) else {}
    programs = {
        name: str(runtime.get("path", "")) if isinstance(runtime, dict) else ""
        for name, runtime in runtimes.items()
        if is_nvidia(name)
    }
    features = config.get("features")
    has_cdi = isinstance(features, dict) and features.get("cdi") is True
    return programs, str(config.get("default-runtime", "")), has_cdi


def docker(root: str) -> "Reading | None":
    if not find_program(root, "dockerd"):
        return None
    text, why = attempt(read, root, DOCKER)
    if text is None and why != "ENOENT":
        return unreadable("docker", why)
    parsed, why = attempt(parse_docker, text or "")
    if parsed is None:
        return unreadable("docker", "{}: {}".format(DOCKER, why))
    programs, default, has_cdi = parsed
    record = engine(
        "docker",
        runtime=bool(programs),
        default_runtime=is_nvidia(default),
        cdi=has_cdi,
        # `docker run --gpus` needs this program, not the runtime
        hook=find_program(root, "nvidia-container-runtime-hook") is not None,
    )
    return with_program(root, record, programs[sorted(programs)[0]]) if programs else record


def imported_texts(root: str, folder: str, patterns: "Iterable[str]") -> "list[str]":
    """The texts of imported files. Raises OSError, ValueError."""
    texts: "list[str]" = []
    for pattern in patterns:
        directory, _, name = (
            pattern if pattern.startswith("/") else folder + "/" + pattern
        ).rpartition("/")
        files = fnmatch.filter(names_or_empty(root, directory or "/"), name)
        if len(texts) + len(files) > MOST_IMPORTED:
            raise ValueError("more than {} files are imported".format(MOST_IMPORTED))
        texts += [read(root, directory + "/" + file) for file in sorted(files)]
    return texts


def parse_engine(
    texts: "Sequence[str]", tables: "tuple[str, str, str | None, tuple[str, ...]]"
) -> "tuple[dict[str, str], str, bool | None]":
    """({runtime: program}, default runtime, CDI or None) of TOML. Raises ValueError.

    `tables`: the end of the key above the runtimes, that of the default, that of CDI.
    """
    runtimes, default_key, cdi_key, program_keys = tables
    programs: "dict[str, str]" = {}
    default, has_cdi = "", None
    for text in texts:
        for key, value in rows(text):
            index = len(key) - 1
            while index > 0 and key[index - 1] != runtimes:
                index -= 1
            if index > 0 and is_nvidia(key[index]):
                programs.setdefault(key[index], "")
                if key[-1] in program_keys and len(key) > index + 1:
                    programs[key[index]] = single(value)
            elif key and key[-1] == default_key:
                default = single(value)
            elif key and key[-1] == cdi_key:
                has_cdi = value == "true"
    if not programs and any(mentions(text, "nvidia") for text in texts):
        raise ValueError("it mentions nvidia in a way that is not understood")
    return programs, default, has_cdi


CONTAINERD_KEYS = ("runtimes", "default_runtime_name", "enable_cdi", ("BinaryName",))
CRIO_KEYS = ("runtimes", "default_runtime", None, ("runtime_path",))


def containerd(root: str, name: str, path: str) -> "Reading":
    """The record of an engine that is containerd."""
    text, why = attempt(read, root, path)
    if text is None:
        return engine(name) if why == "ENOENT" else unreadable(name, "{}: {}".format(path, why))
    texts, why = attempt(with_imports, root, path, text)
    parsed, why = attempt(parse_engine, texts, CONTAINERD_KEYS) if texts else (None, why)
    if parsed is None:
        return unreadable(name, "{}: {}".format(path, why))
    programs, default, has_cdi = parsed
    versions = [value for key, value in rows(text) if key == ("version",)]
    if has_cdi is None:
        has_cdi = versions == ["3"]  # containerd 2: on by default
    record = engine(name, runtime=bool(programs), default_runtime=is_nvidia(default), cdi=has_cdi)
    runtime = default if default in programs else "nvidia"
    return with_program(root, record, programs.get(runtime, "")) if programs else record


def with_imports(root: str, path: str, text: str) -> "list[str]":
    """The texts of a configuration and its imports. Raises OSError, ValueError."""
    patterns = [
        pattern
        for key, value in rows(text)
        if key == ("imports",) and isinstance(value, list)
        for pattern in value
    ]
    return [text] + imported_texts(root, os.path.dirname(path), patterns)


def crio(root: str) -> "Reading | None":
    if not find_program(root, "crio"):
        return None
    try:
        files = [CRIO] if exists(root, CRIO) else []
        drop_ins = [path for path in names_or_empty(root, CRIO_FOLDER) if not path.startswith(".")]
        if len(drop_ins) > MOST_IMPORTED:
            raise ValueError("more than {} files in {}".format(MOST_IMPORTED, CRIO_FOLDER))
        files += [CRIO_FOLDER + "/" + path for path in drop_ins]
        programs, default, _ = parse_engine([read(root, path) for path in files], CRIO_KEYS)
    except (OSError, ValueError) as error:
        return unreadable("crio", reason(error))
    record = engine("crio", runtime=bool(programs), default_runtime=is_nvidia(default), cdi=True)
    return with_program(root, record, programs.get("nvidia", "")) if programs else record


def podman(root: str) -> "Reading | None":
    if not find_program(root, "podman"):
        return None
    return engine("podman", cdi=True, hook=any(exists(root, path) for path in PODMAN_HOOKS))


def enroot(root: str) -> "Reading | None":
    if not find_program(root, "enroot"):
        return None
    hooks = [path_under(root, path) for path in ENROOT_HOOKS]
    return engine("enroot", hook=any(os.access(path, os.X_OK) for path in hooks))


def engines(root: str) -> "list[Reading]":
    """The installed engines."""
    records = [docker(root), crio(root), podman(root), enroot(root)]
    if find_program(root, "containerd"):
        records.append(containerd(root, "containerd", CONTAINERD))
    for name in ("k3s", "rke2"):
        path = RANCHER.format(name)
        if exists(root, path):
            records.append(containerd(root, name, path))
    return [record for record in records if record is not None]


def mode(root: str) -> str:
    """The mode of NVIDIA's runtime; auto by default. Raises OSError, ValueError."""
    try:
        text = read(root, TOOLKIT_CONFIG)
    except FileNotFoundError:
        return ""
    modes = [value for key, value in rows(text) if key == ("nvidia-container-runtime", "mode")]
    return str(modes[-1])[:100] if modes else "auto"


def toolkit(root: str) -> str:
    """The path of a toolkit program; "" if it is not installed. Raises NotHeld."""
    tools = (find_program(root, name) for name in TOOLS)
    return next((path for path in tools if path), "")


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    section = Reading()
    section.take("toolkit", toolkit, root)
    section.take("mode", mode, root)
    section.take("engines", engines, root)
    section.take("specifications", specifications, root)
    return section
