"""Configurations of container engines and CDI specifications, as programs and people write them."""

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe import cdi, toml_rows
from nodevet.remote.probe.collectors import containers

Check = Callable[[str, dict[str, Any]], Any]

SPEC = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07
    options:
    - ro
    - bind
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - hostPath: /run/nvidia/driver/dev/dri/card1
      path: /dev/dri/card1
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-11111111-0000-0000-0000-000000000000
- containerEdits: {}
  name: all
kind: nvidia.com/gpu
"""
STRUCT_ORDER = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
    - name: '1'   # a comment
      containerEdits:
        deviceNodes:
            - path: "/dev/nvidia1"
containerEdits:
    mounts:
        - hostPath: /usr/lib64/libcuda.so.550.90.07
          containerPath: /usr/lib64/libcuda.so.550.90.07
"""
PATHS = [
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/run/nvidia/driver/dev/dri/card1",
    "/usr/bin/nvidia-cdi-hook",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07",
]


def put(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root.resolve())


def test_a_specification_as_the_toolkit_writes_it() -> None:
    kind, devices, paths = cdi.parse(SPEC)
    assert (kind, paths) == ("nvidia.com/gpu", PATHS)
    assert devices == ["0", "GPU-11111111-0000-0000-0000-000000000000", "all"]
    kind, devices, paths = cdi.parse(STRUCT_ORDER)
    assert (kind, devices) == ("nvidia.com/gpu", ["0", "1"])
    assert paths == ["/dev/nvidia0", "/dev/nvidia1", "/usr/lib64/libcuda.so.550.90.07"]


def test_a_specification_in_json_says_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    for text in (SPEC, STRUCT_ORDER):
        assert cdi.parse(json.dumps(yaml.safe_load(text))) == cdi.parse(text)


def test_missing_files_of_a_specification_are_named(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path, dict.fromkeys(PATHS[:2] + PATHS[3:], ""))
    put(
        tmp_path,
        {
            "/etc/cdi/nvidia.yaml": SPEC,
            "/etc/cdi/other.yaml": "kind: intel.com/gpu\n",
            "/etc/cdi/broken.json": "{",
            "/etc/cdi/README": "nothing",
        },
    )
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "run/cdi").symlink_to("/etc/cdi")  # is not read twice
    data = check("containers", containers.collect(root, {}))
    broken, spec = data.specifications
    assert (broken.path, spec.path) == ("/etc/cdi/broken.json", "/etc/cdi/nvidia.yaml")
    assert broken.kind is None and broken.errors["kind"]
    assert (spec.paths, spec.missing) == (5, 1)
    assert spec.examples == ("/run/nvidia/driver/dev/dri/card1",)
    assert spec.driver_version == "550.90.07"


def test_e06_each_path_that_is_missing_is_reported(tmp_path: Path, check: Check) -> None:
    mounts = [{"hostPath": f"/usr/lib/{number:03d}.so"} for number in range(300)]
    for number in (40, 300):
        edits = {"mounts": mounts[:number]}
        text = json.dumps({"kind": "nvidia.com/gpu", "containerEdits": edits})
        root = put(tmp_path, {"/etc/cdi/nvidia.json": text})
        (spec,) = check("containers", containers.collect(root, {})).specifications
        assert (spec.missing, len(spec.examples)) == (number, min(number, cdi.MOST_EXAMPLES))


def test_e06_too_many_driver_versions_of_a_specification_are_not_listed(
    tmp_path: Path, check: Check
) -> None:
    for number, version in ((2, "550.1 and 550.2"), (17, None)):
        paths = [{"hostPath": f"/libcuda.so.550.{at}"} for at in range(1, number + 1)]
        text = json.dumps({"kind": "nvidia.com/gpu", "containerEdits": {"mounts": paths}})
        root = put(tmp_path, {"/etc/cdi/nvidia.json": text})
        (spec,) = check("containers", containers.collect(root, {})).specifications
        assert spec.driver_version == version


def test_a_path_without_access_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    def closed(root: str, path: str) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    root = put(tmp_path, {"/etc/cdi/nvidia.yaml": SPEC})
    monkeypatch.setattr(cdi, "is_missing", closed)
    (spec,) = check("containers", containers.collect(root, {})).specifications
    assert spec.missing is None and spec.errors["missing"] == "EACCES"


@given(st.text(alphabet="abk:- \n\"'{}[]#\t", max_size=80))
def test_a_hostile_specification_is_refused_or_read(text: str) -> None:
    for wanted in (text, "kind: nvidia.com/gpu\n" + text, "{" + text):
        try:
            kind, devices, paths = cdi.parse(wanted)
        except ValueError:
            continue
        assert isinstance(kind, str) and isinstance(devices, list) and isinstance(paths, list)


DAEMON = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
    "default-runtime": "nvidia",
}
PROGRAMS = dict.fromkeys(
    (
        "/usr/bin/dockerd", "/usr/bin/containerd", "/usr/bin/crio", "/usr/bin/podman",
        "/usr/bin/enroot", "/usr/bin/nvidia-container-runtime",
    ),
    "",
)  # fmt: skip
VERSION_2 = """\
version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    enable_cdi = true
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "nvidia"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
          BinaryName = "/usr/bin/nvidia-container-runtime"
"""
VERSION_3 = """\
imports = ["/etc/containerd/conf.d/*.toml",
  "more/one.toml"]
version = 3
"""
DROP_IN = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
    BinaryName = '/usr/local/nvidia/toolkit/nvidia-container-runtime'
"""
CRIO = """\
[crio]
  [crio.runtime]
    default_runtime = "crun"
    [crio.runtime.runtimes.nvidia]
      runtime_path = "/usr/bin/nvidia-container-runtime"
      monitor_path = "/usr/libexec/crio/conmon"
"""


def told(root: str, check: Check) -> dict[str, tuple[Any, ...]]:
    data = check("containers", containers.collect(root, {}))
    return {
        each.name: (each.runtime, each.default_runtime, each.program_exists, each.cdi, each.hook)
        for each in data.engines
    }


def test_the_engines_that_are_configured(tmp_path: Path, check: Check) -> None:
    files = {
        **PROGRAMS,
        "/etc/docker/daemon.json": json.dumps(DAEMON),
        "/etc/containerd/config.toml": VERSION_2,
        "/etc/crio/crio.conf.d/99-nvidia.conf": CRIO,
        "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json": "{}",
        "/etc/enroot/hooks.d/98-nvidia.sh": "#!/bin/sh\n",
    }
    root = put(tmp_path, files)
    (tmp_path / "etc/enroot/hooks.d/98-nvidia.sh").chmod(0o755)
    assert told(root, check) == {
        "docker": (True, True, True, False, False),
        "containerd": (True, True, True, True, False),
        "crio": (True, False, True, True, False),
        "podman": (False, False, False, True, True),
        "enroot": (False, False, False, False, True),
    }


def test_engines_that_know_nothing_of_nvidia(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path, {**PROGRAMS, "/etc/containerd/config.toml": "# nvidia\nversion = 2\n"})
    found = told(root, check)
    assert found["docker"] == found["containerd"] == found["enroot"] == (False,) * 5
    assert found["crio"] == found["podman"] == (False, False, False, True, False)


def test_only_imported_files_of_containerd_are_read(tmp_path: Path, check: Check) -> None:
    root = put(
        tmp_path,
        {
            "/usr/bin/containerd": "",
            "/etc/containerd/config.toml": VERSION_3,
            "/etc/containerd/conf.d/99-nvidia.toml": DROP_IN,
        },
    )
    assert told(root, check)["containerd"] == (True, False, False, True, False)
    put(tmp_path, {"/etc/containerd/config.toml": "version = 2\n"})
    assert told(root, check)["containerd"] == (False, False, False, False, False)


def test_a_configuration_that_is_not_understood_is_not_judged(tmp_path: Path, check: Check) -> None:
    root = put(
        tmp_path,
        {
            **PROGRAMS,
            "/etc/docker/daemon.json": "[]",
            "/etc/containerd/config.toml": 'x = {nvidia = {runtime_type = "a"}}\n',
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml": VERSION_2,
        },
    )
    found = told(root, check)
    assert found["docker"] == found["containerd"] == (None,) * 5
    assert found["k3s"] == (True, True, True, True, False)


@pytest.mark.parametrize("row", ['default_runtime_name = ["nvidia"]', "BinaryName = ['nvidia']"])
def test_a_list_in_place_of_a_name_makes_only_its_engine_unknown(
    tmp_path: Path, check: Check, row: str
) -> None:
    key = row.partition(" ")[0]
    config = re.sub(rf"{key} = .*", row, VERSION_2)
    root = put(tmp_path, {**PROGRAMS, "/etc/containerd/config.toml": config})
    found = told(root, check)
    assert found["containerd"] == (None,) * 5
    assert found["podman"] == (False, False, False, True, False)


def test_an_unreadable_configuration_folder_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    def closed(root: str, path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    root = put(tmp_path, {**PROGRAMS, "/etc/containerd/config.toml": VERSION_3})
    monkeypatch.setattr(containers, "names_or_empty", closed)
    found = told(root, check)
    assert found["containerd"] == found["crio"] == (None,) * 5


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("[nvidia-container-runtime]\nmode = 'cdi' # here\n", "cdi"),
        ("#mode = 'cdi'\n[nvidia-container-runtime]\n", "auto"),
        ("[nvidia-container-runtime.modes.cdi]\nmode = 'legacy'\n", "auto"),
        (None, ""),
    ],
)
def test_the_mode_of_the_runtime(tmp_path: Path, check: Check, text: str | None, mode: str) -> None:
    root = str(tmp_path.resolve())
    if text is not None:
        put(tmp_path, {containers.TOOLKIT_CONFIG: text, "/usr/bin/nvidia-ctk": ""})
    data = check("containers", containers.collect(root, {}))
    assert data.mode == mode
    assert data.toolkit == ("" if text is None else "/usr/bin/nvidia-ctk")


def test_toml_is_read_as_tomllib_reads_it() -> None:
    tomllib = pytest.importorskip("tomllib")
    for text in (VERSION_2, VERSION_3, DROP_IN, CRIO):
        whole = tomllib.loads(text)
        for key, value in toml_rows.rows(text):
            found = whole
            for part in key:
                found = found[part]
            assert isinstance(found, dict) or found == value or str(found).lower() == value


@given(st.text(alphabet="ab.=[]\"'#,\\ \n", max_size=80))
def test_hostile_toml_is_read_without_end_or_error(text: str) -> None:
    for key, _ in toml_rows.rows(text):
        assert isinstance(key, tuple)
