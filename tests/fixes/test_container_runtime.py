"""Docker and containerd get NVIDIA's runtime, and a stale CDI specification is written again."""

import subprocess
from pathlib import Path

import pytest

from nodevet.fixes.container_runtime import REFRESH
from nodevet.fixing.model import FixError, Risk
from nodevet.fixing.room import require_room
from nodevet.resource.unit import SetUnit

CTK = "/usr/bin/nvidia-ctk"
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
BARE = {"name": "docker", "runtime": False, "default_runtime": False, "program": ""}
BARE = {**BARE, "program_exists": False, "cdi": False, "hook": False}
STALE = {"kind": "nvidia.com/gpu", "devices": ["0"], "paths": 1, "missing": 1}
STALE = {**STALE, "path": "/etc/cdi/nvidia.yaml", "examples": ["/dev/x"], "driver_version": ""}
ENGINES = {"engines": ["docker"]}


def node(engine=None, spec=None, toolkit=CTK, mode="", **units):
    states = {"docker": RUNS, "containerd": RUNS, "nvidia-cdi-refresh": ABSENT}
    states.update({name.replace("_", "-"): state for name, state in units.items()})
    return {
        "containers": {
            "toolkit": toolkit,
            "mode": mode,
            "engines": [BARE | engine] if engine is not None else [],
            "specifications": [STALE | spec] if spec is not None else [],
        },
        "gpu": {"count": 1, "gpus": [{"index": 0, "uuid": "GPU-0", "mig_current": False}]},
        "modules": {"errors": {"nvidia_version": "ENOENT"}},
        "pci": {"functions": []},
        "services": {"units": [{"name": f"{name}.service", **v} for name, v in states.items()]},
    }


def labels(change):
    return [each.label for each in change.actions], [each.label for each in change.resources]


def test_docker_is_configured_and_restarted(plan):
    (change,) = plan("container_runtime", ENGINES, node(engine={}))
    configure = f"{CTK} runtime configure --runtime=docker --config=/etc/docker/daemon.json"
    actions, resources = labels(change)
    room = require_room("/etc/docker/daemon.json").label
    assert actions == [room, configure, "restart docker.service"]
    assert resources == ["file /etc/docker/daemon.json", "unit docker.service"]
    assert (change.risk, change.note) == (Risk.DRAIN, "its restart may end containers")
    assert change.actions[2] == SetUnit(name="docker.service", restart=True)


def test_the_default_is_set_if_it_is_expected(plan):
    wish = {"engines": ["containerd"], "default_runtime": ["containerd"]}
    (change,) = plan("container_runtime", wish, node(engine={"name": "containerd"}))
    actions, resources = labels(change)
    files = ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml")
    options = f"--config={files[0]} --drop-in-config={files[1]} --set-as-default"
    assert actions[1] == f"{CTK} runtime configure --runtime=containerd {options}"
    assert resources == [*(f"file {file}" for file in files), "unit containerd.service"]


def test_a_cdi_specification_is_regenerated_at_its_path(plan):
    (change,) = plan("container_runtime", {}, node(spec={"path": "/etc/cdi/gpus.yml"}))
    command = f"{CTK} cdi generate --output=/etc/cdi/gpus.yml"
    room = require_room("/etc/cdi/x").label
    assert labels(change) == ([room, command], ["file /etc/cdi/gpus.yml"])
    assert (change.risk, change.note) == (Risk.LIVE, "")
    (change,) = plan("container_runtime", {"cdi": True}, node())
    command = f"{CTK} cdi generate --output=/etc/cdi/nvidia.yaml"
    assert labels(change) == ([room, command], ["file /etc/cdi/nvidia.yaml"])


@pytest.mark.parametrize("spec", [None, {"path": "/var/run/cdi/nvidia.yaml"}])
def test_the_refresh_service_writes_its_own_specification(plan, spec):
    (change,) = plan("container_runtime", {"cdi": True}, node(spec=spec, nvidia_cdi_refresh=RUNS))
    assert labels(change) == ([f"restart {REFRESH}"], [f"unit {REFRESH}"])


@pytest.mark.parametrize(
    ("engine", "units", "why"),
    [
        ({"name": "crio"}, {}, "nodevet configures only docker and containerd"),
        ({"name": "podman"}, {}, "it is not installed"),
        ({"runtime": True, "program": "/x"}, {}, "its runtime's program is missing: install"),
        ({}, {"docker": ABSENT}, "docker.service: it does not exist"),
        ({}, {"docker": {**RUNS, "load_state": "masked"}}, "it is masked on purpose"),
        ({}, {"docker": {**RUNS, "active_state": "activating"}}, "is activating; plan again"),
        ({}, {"docker": {**RUNS, "file_state": None}}, "docker.service: file_state: "),
    ],
)
def test_an_engine_that_nodevet_cannot_configure_is_refused(plan, engine, units, why):
    name = "crio" if engine.get("name") == "crio" else "docker"
    with pytest.raises(FixError, match=why):
        plan("container_runtime", {"engines": [name]}, node(engine=engine, **units))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"kind": "nvidia.com/imex"}, "it is not of nvidia.com/gpu"),
        ({"path": "/etc/cdi/nvidia.json"}, "writes only YAML in /etc/cdi"),
        ({"path": "/etc/cdi/$(reboot).yaml"}, "writes only YAML in /etc/cdi"),
        ({"path": "/var/run/cdi/nvidia.yaml"}, "writes only YAML in /etc/cdi"),
        ({"devices": ["0", "1", "all"]}, "names GPU 1, which the node does not show: see gpu_coun"),
        ({"devices": ["GPU-0", "GPU-1"]}, "names GPU GPU-1, which the node does not show"),
    ],
)
def test_a_cdi_specification_that_nodevet_cannot_write_is_refused(plan, spec, why):
    with pytest.raises(FixError, match=why):
        plan("container_runtime", {}, node(spec=spec))


@pytest.mark.parametrize(
    ("toolkit", "why"),
    [
        ("", "nvidia-ctk is not on the node: install nvidia-container-toolkit"),
        ("/usr/bin/nvidia-container-runtime", "is not from a package"),
        ("/usr/local/nvidia/toolkit/nvidia-ctk", "is not from a package: nodevet does not use"),
        ("/usr/bin/nvidia-ctk;reboot", "is not from a package"),
    ],
)
def test_without_the_packaged_toolkit_nothing_is_planned(plan, toolkit, why):
    with pytest.raises(FixError, match=why):
        plan("container_runtime", ENGINES, node(engine={}, toolkit=toolkit))


def test_unread_values_plan_nothing(plan, wrong, evidence):
    whole = node(engine={}, spec={})
    findings = wrong("container_runtime", ENGINES, evidence(whole))
    assert {finding.subject.kind for finding in findings} == {"runtime", "cdi"}
    for section in ("containers", "services"):
        less = {name: part for name, part in whole.items() if name != section}
        with pytest.raises(FixError):
            plan("container_runtime", ENGINES, less, findings)
    assert plan("container_runtime", ENGINES, node(engine={"hook": True})) == []


@pytest.mark.parametrize("free", [True, False])
def test_reserved_space_leaves_no_file(tmp_path: Path, free: bool) -> None:
    """Whoever kills it, and whatever a killed one left before."""
    folder, programs = tmp_path / "etc", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    seen = tmp_path / "seen"
    end = "kill -9 $PPID" if free else 'echo "No space left on device" >&2; exit 1'
    (programs / "dd").write_text(f"#!/bin/sh\nls -A {folder} >{seen}\n{end}\n")
    (programs / "dd").chmod(0o755)
    words = require_room(f"{folder}/new/config").words
    path = {"PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == (-9 if free else 1), done
    assert seen.read_text() == "" and list(folder.iterdir()) == []
    (folder / ".nodevet-room.abcdef").write_text("left")
    assert subprocess.run(words, check=False).returncode == 0
    assert list(folder.iterdir()) == []
