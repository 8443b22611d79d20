"""What the software around the driver leaves on a healthy node: Docker, what else gives containers
their GPUs, and DCGM. Pure."""

import json
from collections.abc import Iterator, Mapping

from nodevet_sim.state import count_of, of_gpu

CDI = "/etc/cdi/nvidia.yaml"
DPKG = "/var/lib/dpkg/status"
TOOLKIT = "/usr/bin/nvidia-ctk"
RUNTIME = "/usr/bin/nvidia-container-runtime"
DOCKER, DAEMON = "/usr/bin/dockerd", "/etc/docker/daemon.json"
PROGRAM = "#!/bin/sh\nexit 1\n"  # it is there, and never run
DIAG = "/var/log/dcgm-diag.json"
TESTS = ("software", "pcie", "memory", "diagnostic", "targeted_stress")


def root_files(state: Mapping[str, str]) -> dict[str, str]:
    """A node without GPUs has none of them."""
    if not count_of(state):
        return {}
    return {
        **dict.fromkeys((TOOLKIT, RUNTIME, DOCKER), PROGRAM),
        CDI: specification(state),
        DAEMON: daemon(),
        DIAG: diagnostic(state),
    }


def driver_package(version: str) -> str:
    """The name of the package that has this version of the driver, as Ubuntu names it."""
    return f"nvidia-driver-{version.partition('.')[0]}"


def dpkg_rows(package: str, version: str, *, held: bool = False) -> tuple[str, ...]:
    """The text of an installed package in /var/lib/dpkg/status."""
    return (
        f"Package: {package}",
        f"Status: {'hold' if held else 'install'} ok installed",
        "Architecture: amd64",
        f"Version: {version}",
        "Description: a package of a test",
    )


def daemon(default: str = "nvidia", program: str = RUNTIME) -> str:
    """The configuration of Docker that has NVIDIA's runtime, which is this program."""
    settings = {"default-runtime": default, "runtimes": {"nvidia": {"path": program}}}
    return json.dumps(settings, indent=1) + "\n"


def specification(state: Mapping[str, str], *, mounts: tuple[str, ...] = (), more: int = 0) -> str:
    """The GPUs of this node, and so many more, as `nvidia-ctk cdi generate` lists them."""
    rows = ["---", "cdiVersion: 0.5.0", "containerEdits:", "  deviceNodes:"]
    rows += [f"  - path: {path}" for path in ("/dev/nvidiactl", "/dev/nvidia-uvm")]
    rows += ["  hooks:", "  - args:", "    - nvidia-ctk", "    - hook", "    - update-ldcache"]
    rows += ["    hookName: createContainer", f"    path: {TOOLKIT}"]
    if mounts:
        rows.append("  mounts:")
    for path in mounts:
        rows += [f"  - containerPath: {path}", f"    hostPath: {path}"]
    rows.append("devices:")
    for name, minors in _devices(state, more):
        rows += ["- containerEdits:", "    deviceNodes:"]
        rows += [f"    - path: /dev/nvidia{minor}" for minor in minors]
        rows.append(f'  name: "{name}"')
    return "\n".join([*rows, "kind: nvidia.com/gpu", ""])


def _devices(state: Mapping[str, str], more: int) -> Iterator[tuple[str, list[int]]]:
    indices = list(range(count_of(state) + more))
    for index in indices:
        uuid = of_gpu(state, index, "uuid") or ""
        for name in (str(index), uuid):
            if name and not name.startswith("NVML_"):
                yield name, [index]
    yield "all", indices


def diagnostic(
    state: Mapping[str, str], failed: Mapping[tuple[str, int], str] | None = None
) -> str:
    """What `dcgmi diag -j` printed; `failed`: (test, GPU) and its message."""
    gpus = range(count_of(state))
    wrong = failed or {}

    def result(test: str, gpu: int) -> dict[str, object]:
        found: dict[str, object] = {"entity_group": "GPU", "entity_id": gpu, "status": "Pass"}
        if (test, gpu) in wrong:
            found["status"] = "Fail"
            found["warnings"] = [{"error_id": 1, "warning": wrong[test, gpu]}]
        return found

    tests = [{"name": test, "results": [result(test, gpu) for gpu in gpus]} for test in TESTS]
    serials = [of_gpu(state, gpu, "serial") or "" for gpu in gpus]
    entities = [
        {"entity_id": gpu, "serial_num": serial}
        for gpu, serial in enumerate(serials)
        if serial and not serial.startswith("NVML_")
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {
            "version": "4.2.3",
            "Driver Version Detected": state.get("driver_version", ""),
        },
    }
    return json.dumps(document, indent=1) + "\n"
