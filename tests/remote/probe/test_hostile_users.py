"""What an ordinary user of a node cannot make root's probe do or believe."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import nodevet.remote
from nodevet.remote.managers.node_files import NodeFiles
from nodevet.remote.managers.programs import Programs
from nodevet.remote.probe import cgroups, files, job_names, sleeps
from nodevet.remote.probe.collectors import boots, dcgm, filesystems, mounts, processes
from nodevet.remote.probe.collectors import files as asked_files
from nodevet.remote.probe.flight import Dumps

REMOTE = Path(nodevet.remote.__file__).parent
BREAKS = ("\r", "\v", "\f", "\x1c", "\x85", "\u2028")  # str.splitlines ends a line at each of them


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The modes of the files that are opened for more than a look at what they are."""
    modes: list[int] = []
    real = os.open

    def noting(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        descriptor = real(path, flags, *rest, **more)
        if not flags & os.O_PATH:
            modes.append(os.fstat(descriptor).st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", noting)
    return modes


def dump_of(folder: Path, fifo: Path) -> object:
    """Read the dump of a job whose user says that it is this file."""
    (folder / "root").symlink_to("/")
    prefix = str(fifo).removesuffix("0")
    (folder / "environ").write_text(f"RANK=0\0TORCH_FR_DUMP_TEMP_FILE={prefix}\0")
    return Dumps().read(f"{folder}/", os.geteuid(), 0.0)


def script_of(folder: Path, path: str) -> object:
    """Look whether the program of a user's crontab is a script."""
    programs = Programs(NodeFiles("/"))
    return programs.named_scripts(f"* * * * * {path}") or programs.is_script(path, True)


READERS: dict[str, Callable[[Path, Path], object]] = {
    "read": lambda _, fifo: files.read("/", str(fifo)),
    "read from another root": lambda _, fifo: files.read(str(fifo.parent), f"/{fifo.name}"),
    "read by way of /proc": lambda _, fifo: files.read("/", f"/proc/self/root{fifo}"),
    "read by way of /sys": lambda _, fifo: files.read("/", f"/sys/class/../..{fifo}"),
    "hash": lambda _, fifo: asked_files.sha256("/", str(fifo)),
    "boots": lambda _, fifo: boots.tail("/", str(fifo)),
    "dump": dump_of,
    "script": lambda folder, fifo: script_of(folder, str(fifo)),
    "script by way of /proc": lambda folder, fifo: script_of(folder, f"/proc/self/root{fifo}"),
}


@pytest.mark.parametrize("way", READERS)
def test_a_file_that_is_not_regular_is_not_even_opened(
    way: str, tmp_path: Path, opened: list[int]
) -> None:
    """As a FIFO here: to open a watchdog's device resets the machine."""
    fifo = tmp_path.resolve() / "watchdog0"
    os.mkfifo(fifo)
    if way.startswith("script"):
        assert not READERS[way](tmp_path, fifo)
    else:
        with pytest.raises(ValueError, match="not a regular file"):
            READERS[way](tmp_path, fifo)
    assert all(map(stat.S_ISREG, opened)), opened


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_a_file_that_may_not_be_read_is_named() -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "secret")
        file.touch(mode=0)
        Path(folder).chmod(0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError) as told:
                files.read("/", str(file))
        finally:
            os.seteuid(0)
    assert told.value.filename == str(file)


@pytest.mark.parametrize("text", ["\rUid:\t4242", "\fUid:\t4242"])
def test_the_name_of_a_process_adds_no_row_to_its_status(text: str) -> None:
    """The kernel escapes only newlines and backslashes there."""
    rename = (
        "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", rename, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        record = processes.process("/", process.pid, [])
        process.communicate(b"\n")
    assert (record["uid"], record["command"]) == (os.getuid(), text)


@pytest.mark.parametrize("letter", BREAKS)
def test_the_name_of_a_mount_point_does_not_end_a_row(letter: str) -> None:
    """A user mounts a file system of FUSE in a folder of any name."""
    point = f"/home/eve/a{letter}b"
    mountinfo = f"20 1 8:2 / / rw - ext4 /dev/sda2 rw\n30 20 0:9 / {point} rw - fuse eve rw\n"
    (_, row) = mounts.parse_mounts(mountinfo)
    assert row[4] == point
    assert filesystems.parse_mounts(f"/dev/sda2 / ext4 rw 0 0\neve {point} fuse rw 0 0\n") == {
        "/": ("ext4", ["rw"]),
        point: ("fuse", ["rw"]),
    }
    tables = sleeps.Tables("/", 1)
    point = f"/home/eve/a{letter}-{letter}ext4"
    tables.read_tables["mountinfo"] = f"30 20 0:9 / {point} rw - fuse eve rw\n".encode()
    assert tables.mount("30")["filesystem"] == "fuse"


@pytest.mark.parametrize("letter", BREAKS)
def test_the_name_of_a_cgroup_does_not_end_a_row(letter: str) -> None:
    path = f"/user.slice/user@1000.service/a{letter}0::/system.slice/slurmstepd.scope/job_7"
    assert cgroups.hierarchies(f"0::{path}\n") == {"": path}
    path = f"/user.slice/a{letter}1:name=systemd:/system.slice/slurmd.service"
    assert processes.parse_cgroup(f"0::{path}\n") == path


def test_no_code_on_the_node_calls_splitlines() -> None:
    """Of text that a user has named something in, files.text_lines has the lines."""
    texts = {path: path.read_text() for path in REMOTE.rglob("*.py")}
    assert len(texts) > 100
    assert [path for path, text in texts.items() if ".splitlines(" in text] == []


OWN = "/user.slice/user-1000.slice/user@1000.service"
FORGED = {
    "slurm": f"{OWN}/slurm/uid_1000/job_12/step_0",
    "slurmstepd": f"{OWN}/slurmstepd.scope/job_12/step_0/user",
    "pod": f"{OWN}/kubepods.slice/kubepods-pod6f1d0000_0000_0000_0000_000000000000.slice/x",
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_cgroup_that_a_user_created_belongs_to_no_job(kind: str) -> None:
    assert job_names.job_id(FORGED[kind], {}) is None
    assert job_names.step_id(FORGED[kind], {}) is None
    above = FORGED[kind].removeprefix(OWN).replace("/slurmstepd", "/system.slice/slurmstepd")
    assert job_names.job_id(above, {}) is not None


@pytest.mark.parametrize("kind", FORGED)
def test_a_process_in_a_cgroup_that_its_user_created_may_be_ended(kind: str) -> None:
    program = (REMOTE / "end_process.py").read_text().rpartition("\nID, START,")[0]
    names: dict[str, Any] = {}
    exec(compile(program, "end_process.py", "exec"), names)
    cgroup = {"status": "Uid:\t1000\t1000\n", "stat": "7 (x) S 1 7 7 0 -1 0 0 ", "cgroup": ""}
    names["text"] = lambda pid, name: cgroup[name]
    cgroup["cgroup"] = f"0::{FORGED[kind]}\n"
    assert names["refusal"](7, 1000, "") == ""
    cgroup["cgroup"] = f"0::{FORGED[kind].removeprefix(OWN)}\n1:name=systemd:/\n"
    assert "a job or a pod" in names["refusal"](7, 1000, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a file of another user")
def test_dcgm_results_that_any_user_may_have_written_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "diag.json"
    file.write_text("{}")
    for uid, mode, is_refused in ((1000, 0o644, True), (0, 0o646, True), (0, 0o644, False)):
        os.chown(file, uid, -1)
        file.chmod(mode)
        record = dcgm.diagnostic("/", str(file))
        assert ("any user may have" in record["errors"]["results"]) is is_refused


def test_a_captured_tree_without_proc_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def without_proc(path: str, *rest: Any) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(2, os.strerror(2), path)
        return real(path, *rest)

    (tmp_path / "file").write_text("text")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(os, "open", without_proc)
    assert files.read(str(tmp_path), "/file") == "text"
    with pytest.raises(ValueError, match="not a regular file"):
        files.read(str(tmp_path), "/fifo")
    with pytest.raises(FileNotFoundError, match="nothing"):
        files.read(str(tmp_path), "/nothing")
