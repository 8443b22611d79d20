"""Variables as files of a node set them; only what CUDA, NCCL and the loader act on is sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import environment
from nodevet.remote.probe.files import Absent, SectionError

Check = Callable[[str, dict[str, Any]], Any]

FILES = {
    "/etc/environment": (
        'PATH="/usr/bin"\nCUDA_VISIBLE_DEVICES=0,1\n# NCCL_DEBUG=INFO\nSITE_TOKEN=x\n'
        'NVIDIA_API_KEY="nvapi-1"\n'
    ),
    "/etc/profile.d/cuda.sh": (
        "export LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}\n"
        '[ -n "$PS1" ] && export NCCL_P2P_DISABLE=\'1\' CUDA_CACHE_PATH="/tmp/a b" # NCCL_X=2\n'
        "MY_CUDA_HOME=/x\n"
    ),
    "/etc/profile.d/cuda.csh": "setenv CUDA_VISIBLE_DEVICES 0\n",
    "/etc/nccl.conf": "NCCL_IB_HCA=mlx5\n#NCCL_DEBUG=WARN\n",
    "/etc/systemd/system.conf": '[Manager]\nDefaultEnvironment="NCCL_DEBUG=INFO" LD_PRELOAD=/a\n',
    "/etc/ld.so.preload": "# none\n/usr/lib/libx.so\n",
}


def put(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root.resolve())


def test_variables_are_reported_with_their_place(tmp_path: Path, check: Check) -> None:
    data = check("environment", environment.collect(put(tmp_path, FILES), {}))
    told = {(each.name, each.value, each.place) for each in data.variables}
    assert told == {
        ("CUDA_VISIBLE_DEVICES", "0,1", "/etc/environment:2"),
        ("NVIDIA_API_KEY", None, "/etc/environment:5"),
        (
            "LD_LIBRARY_PATH",
            "/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}",
            "/etc/profile.d/cuda.sh:1",
        ),
        ("NCCL_P2P_DISABLE", "1", "/etc/profile.d/cuda.sh:2"),
        ("CUDA_CACHE_PATH", "/tmp/a b", "/etc/profile.d/cuda.sh:2"),
        ("NCCL_IB_HCA", "mlx5", "/etc/nccl.conf:1"),
        ("NCCL_DEBUG", "INFO", "/etc/systemd/system.conf:2"),
        ("LD_PRELOAD", "/a", "/etc/systemd/system.conf:2"),
        ("/etc/ld.so.preload", "/usr/lib/libx.so", "/etc/ld.so.preload:2"),
    }
    assert data.unread == ""


def test_what_cannot_be_read_is_reported(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path, {})
    (tmp_path / "etc/environment").mkdir(parents=True)
    (tmp_path / "etc/nccl.conf").write_bytes(b"\0" * (1 << 20) + b"..")
    data = check("environment", environment.collect(root, {}))
    assert data.unread == "/etc/environment: not a regular file; /etc/nccl.conf: EFBIG"


def test_too_many_variables_are_an_error(tmp_path: Path) -> None:
    root = put(tmp_path, {"/etc/environment": "NCCL_DEBUG=1\n" * 501})
    with pytest.raises(SectionError, match="more than 500"):
        environment.collect(root, {})


def test_units_are_asked_by_name(
    monkeypatch: pytest.MonkeyPatch, check: Check, tmp_path: Path
) -> None:
    file = tmp_path / "slurmd"
    file.write_text("SLURMD_OPTIONS=-Z\nCUDA_LAUNCH_BLOCKING=1\n")
    shown = {
        "Id": "slurmd.service",
        "LoadState": "loaded",
        "Environment": 'A=b "LD_PRELOAD=/x.so" NCCL_DEBUG=INFO',
        "EnvironmentFiles": f"{file} (ignore_errors=yes)",
    }
    monkeypatch.setattr(environment, "show", lambda units, properties: [shown])
    ask = {"asks": {"environment": ["slurmd.service", "kubelet.service", "--x"]}}
    data = check("environment", environment.collect("/", ask))
    told = {each.name: each for each in data.units}
    assert {(each.name, each.place) for each in told["slurmd.service"].variables} == {
        ("LD_PRELOAD", "slurmd.service"),
        ("NCCL_DEBUG", "slurmd.service"),
        ("CUDA_LAUNCH_BLOCKING", f"{file}:2"),
    }
    assert "answered for 'slurmd.service'" in told["kubelet.service"].errors["variables"]
    assert told["--x"].errors["variables"] == "not a valid systemd unit name"
    (tmp_path / "etc").mkdir()
    data = check("environment", environment.collect(str(tmp_path), ask))
    assert {each.variables for each in data.units} == {None}


@given(st.text(alphabet="A_NCL=\"'\\ #;$x", max_size=60))
def test_a_hostile_row_is_read(row: str) -> None:
    for name, value in environment.assignments("NCCL_" + row):
        assert name.startswith(("NCCL_", "LD_")) and isinstance(value, str)


def test_a_long_row_is_read_in_time() -> None:
    for letter in ("'", '"', "\\", "# ", "NCCL_A=", '"\\'):
        environment.assignments(letter * (environment.LONGEST // len(letter)))


def test_a_row_that_is_too_long_is_reported(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path, {"/etc/environment": "A=" + "b" * 5000 + "\nNCCL_DEBUG=WARN\n"})
    data = check("environment", environment.collect(root, {}))
    assert [each.name for each in data.variables] == ["NCCL_DEBUG"]
    assert data.unread == "/etc/environment:1: longer than 4096 characters"


def test_e06_a_value_is_reported_whole_or_not_at_all(tmp_path: Path, check: Check) -> None:
    long = ":".join(f"/opt/lib{number}" for number in range(200)) + ":/opt/stubs"
    files = {"/etc/environment": f"LD_LIBRARY_PATH={long}\n", "/etc/ld.so.preload": "/x" * 2500}
    data = check("environment", environment.collect(put(tmp_path, files), {}))
    told = {each.name: each for each in data.variables}
    assert told["LD_LIBRARY_PATH"].value == long
    preload = told["/etc/ld.so.preload"]
    assert (preload.value, preload.errors["value"]) == (None, "longer than 4096 characters")


def test_the_environment_is_absent_in_a_tree_without_etc(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no /etc"):
        environment.collect(str(tmp_path), {})
