"""Libraries as the loader finds them: by a cache that ldconfig wrote, and by hostile ones."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import libraries
from nodevet.remote.probe.files import SectionError

Check = Callable[[str, dict[str, Any]], Any]
LDCONFIG = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
VERSION = "550.90.07"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of the driver's name, and a cache in which ldconfig put it."""
    if LDCONFIG is None or shutil.which("gcc") is None:
        pytest.skip("neither ldconfig nor gcc may be missing here")
    folder = tmp_path_factory.mktemp("driver").resolve()
    (folder / "empty.c").write_text("int nothing;\n")
    for name in ("libcuda", "libnvidia-ml"):
        command = ["gcc", "-shared", f"-Wl,-soname,{name}.so.1", "empty.c"]
        subprocess.run([*command, "-o", f"{name}.so.{VERSION}"], cwd=folder, check=True)
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (folder / "conf").write_text(f"{folder}\n")
    cache = [LDCONFIG, "-X", "-C", str(folder / "cache"), "-f", str(folder / "conf")]
    subprocess.run(cache, check=True, capture_output=True)
    return folder


def told(data: Any) -> dict[str, Any]:
    return {each.name: each for each in data.libraries}


def test_libraries_in_the_cache_of_ldconfig_are_read(
    built: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(libraries, "CACHE", str(built / "cache"))
    asked = {"asks": {"libraries": ["libc.so.6", "../libc.so", "libnone.so.1"]}}
    found = told(check("libraries", libraries.collect("/", asked)))
    cuda = found["libcuda.so.1"]
    assert (cuda.path, cuda.cached) == (str(built / "libcuda.so.1"), True)
    assert (cuda.file, cuda.version) == (str(built / f"libcuda.so.{VERSION}"), VERSION)
    assert cuda.broken == ""
    assert found["libc.so.6"].broken == ""
    assert found["libnone.so.1"].path == ""
    assert "not a valid library name" in found["../libc.so"].errors["path"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"", "empty"),
        (lambda data: data[: len(data) // 4], "truncated: "),
        (lambda data: data[:100], "truncated: 100 bytes"),
        (lambda data: b"GNU ld script\n" + data, "not an ELF file"),
        (lambda data: data[:4] + b"\1\1" + data[6:], "not an ELF file of 64 bits"),
        (lambda data: data[:16] + b"\2\0" + data[18:], "not a shared object"),
    ],
)
def test_a_library_that_cannot_be_loaded(
    built: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    data = change((built / "libcuda.so.1").read_bytes())
    assert libraries.parse_elf(data[: libraries.HEAD], len(data)).startswith(why)


def test_without_a_cache_the_loader_looks_into_its_folders(tmp_path: Path, check: Check) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    (folder / "libnvidia-ml.so.1").mkdir()
    found = told(check("libraries", libraries.collect(str(tmp_path.resolve()), {})))
    cuda = found["libcuda.so.1"]
    assert (cuda.path, cuda.cached) == ("/usr/lib64/libcuda.so.1", False)
    assert (cuda.version, cuda.broken) == (VERSION, "does not exist")
    assert found["libnvidia-ml.so.1"].broken == "not a regular file"


def test_the_gpu_operators_driver_is_seen(tmp_path: Path, check: Check) -> None:
    root = str(tmp_path.resolve())
    assert check("libraries", libraries.collect(root, {})).driver_in_container is False
    (tmp_path / "run/nvidia/driver/usr/bin").mkdir(parents=True)
    assert check("libraries", libraries.collect(root, {})).driver_in_container is True


def test_an_invalid_cache_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"ld.so-1.7.0\0" + bytes(100))
    with pytest.raises(SectionError, match="not a cache of glibc's loader"):
        libraries.collect(str(tmp_path.resolve()), {})


def parsed_or_refused(data: bytes) -> None:
    try:
        found = libraries.parse_cache(data, libraries.DRIVER)
    except ValueError:
        return
    assert all(path.startswith("/") for path in found.values())


@given(st.binary(max_size=300))
def test_a_hostile_cache_is_refused(data: bytes) -> None:
    parsed_or_refused(data)
    parsed_or_refused(libraries.MAGIC + data)


@given(st.integers(0, 3000), st.integers(0, 255))
def test_a_damaged_cache_is_refused_or_read(built: Path, at: int, byte: int) -> None:
    data = bytearray((built / "cache").read_bytes())
    data[at % len(data)] = byte
    parsed_or_refused(bytes(data))
    parsed_or_refused(bytes(data[: at % len(data)]))


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_a_hostile_library_is_only_described(data: bytes, size: int) -> None:
    assert isinstance(libraries.parse_elf(b"\x7fELF\2\1" + data, size), str)
