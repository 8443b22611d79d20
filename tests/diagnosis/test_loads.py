"""Real jobs on simulated GPUs of this machine: each is told what it waits for. What the GPUs do is
what the jobs start there; see tests/diagnosis/loads."""

import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gpu_load import JSON, LoadedMachine, cgroup, loaded_machine, slow_file, slow_program

pytestmark = pytest.mark.timeout(300)
QUIET: dict[str, set[str]] = {  # several of them fit beside one another
    "steady": {"GPU-bound"},
    "locked": {"stuck"},
    "holds": {"idle"},
    "copies": {"transfer-bound"},
    "paces": set(),  # not enough evidence
    "reads": {"storage-bound"},
    "threads_read": {"storage-bound"},
    "maps": {"storage-bound"},
}
HOT = {
    "one_hot_thread": "preprocessing-bound",  # in user time
    "hot_threads": "preprocessing-bound",
    "unpacks": "preprocessing-bound",
    "compiles": "preprocessing-bound",
    "queues": "preprocessing-bound",
    "ping_pong": "submission-bound",
}


def figures(gpu: JSON) -> dict[str, JSON]:
    return {figure["name"]: figure for figure in gpu["figures"]}


def own_causes(gpu: JSON) -> set[str]:
    """The causes, without what other programs of this machine add if they take its CPUs."""
    is_starved = figures(gpu)["cpu_starved"]["value"] >= 20
    return set(gpu["causes"]) - ({"CPUs taken by others"} if is_starved else set())


@pytest.fixture(scope="module")
def machine(nvml: Path) -> Iterator[LoadedMachine]:
    slow = f"gpu.{len(QUIET)}.app_clock_graphics_mhz = 900\n"
    gpm = "gpu.*.gpm_supported = 1\ngpu.*.gpm_sm_percent = 96\ngpu.*.gpm_dram_percent = 44\n"
    with loaded_machine(nvml, len(QUIET) + 1, slow + gpm) as found:
        yield found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_program(tmp_path_factory.mktemp("slowfs") / "slowfs")


@pytest.fixture(scope="module")
def slow(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with slow_file(program, tmp_path_factory.mktemp("slow"), 20_000) as file:
        yield file


@pytest.fixture(scope="module")
def quiet(machine: LoadedMachine, slow: Path) -> JSON:
    """Eight jobs, a GPU each, watched at the same time; and one whose clocks are set low."""
    with ExitStack() as stack:
        stack.enter_context(machine.load("steady", gpu=len(QUIET)))
        for index, name in enumerate(QUIET):
            stack.enter_context(machine.load(name, slow, gpu=index))
        return machine.diagnose()


@pytest.mark.parametrize("name", QUIET)
def test_jobs_that_wait_get_the_expected_cause_and_owner(quiet: JSON, name: str) -> None:
    gpu = quiet["gpus"][list(QUIET).index(name)]
    assert own_causes(gpu) == QUIET[name], gpu["sentence"]
    (job,) = gpu["jobs"]
    assert job["owner"]["uid"] == os.getuid()
    assert job["owner"]["login"] in (pwd.getpwuid(os.getuid()).pw_name, "")


def test_the_gpu_is_busy_as_its_job_demands(quiet: JSON) -> None:
    busy = {
        name: figures(gpu)["sm_busy"]["value"]
        for name, gpu in zip(QUIET, quiet["gpus"], strict=False)
    }
    assert busy["steady"] > 90 and busy["locked"] == busy["holds"] == 0, busy
    assert 10 < busy["paces"] < 40, "30 ms of 130, by its own clock"


def test_clocks_and_power_rise_with_the_load_unless_they_are_set(quiet: JSON) -> None:
    steady, locked = (quiet["gpus"][list(QUIET).index(name)] for name in ("steady", "locked"))
    assert figures(steady)["clock"]["value"] == 100 and figures(steady)["power"]["value"] > 80
    assert figures(locked)["clock"]["value"] < 20 and figures(locked)["power"]["value"] < 20
    assert "96 % of its SMs are busy, it uses 44 % of its memory bandwidth" in steady["sentence"]
    slow = quiet["gpus"][len(QUIET)]
    assert slow["causes"] == ["throttled"], slow["sentence"]
    assert "its SM clock is 45 % of its maximum (application clock 900 MHz)" in slow["sentence"]
    assert "nvidia-smi -rac" in slow["next_step"]


def test_the_advised_read_rate_is_the_same_for_one_and_four_reader_threads(quiet: JSON) -> None:
    """Their GPUs need as many bytes a second: four threads read four times as many already."""
    one, four = (quiet["gpus"][list(QUIET).index(name)] for name in ("reads", "threads_read"))
    wanted = [
        float(gpu["sentence"].split("storage that reads ")[1].split()[0]) for gpu in (one, four)
    ]
    assert wanted[0] == pytest.approx(wanted[1], rel=0.3), (one["sentence"], four["sentence"])


def test_g10_the_file_that_a_job_waits_for_is_named(quiet: JSON, slow: Path) -> None:
    sentence = quiet["gpus"][list(QUIET).index("reads")]["sentence"]
    assert f"in pread64 of {slow} on {slow.parent}, fuse" in sentence, sentence


def test_where_a_stuck_job_sleeps_is_reported(quiet: JSON) -> None:
    sentence = quiet["gpus"][list(QUIET).index("locked")]["sentence"]
    assert "kernel stack of python" in sentence or "asleep in futex_" in sentence
    assert " futex_" in sentence, sentence


@pytest.mark.parametrize("name", HOT)
def test_jobs_that_compute_get_the_expected_cause(machine: LoadedMachine, name: str) -> None:
    with machine.load(name):
        gpu = machine.diagnose()["gpus"][0]
    assert own_causes(gpu) <= {HOT[name]} and gpu["causes"], gpu["sentence"]


def test_two_causes_are_reported_as_a_mixture(machine: LoadedMachine, slow: Path) -> None:
    with machine.load("reads_and_transforms", slow):
        gpu = machine.diagnose()["gpus"][0]
    assert gpu["cause"] == "mixed", gpu["sentence"]
    on_a_quiet_machine = {"storage-bound", "preprocessing-bound"}
    assert set(gpu["causes"]) in (on_a_quiet_machine, {"storage-bound", "CPUs taken by others"})


def test_a_job_under_a_cpu_quota(machine: LoadedMachine) -> None:
    quota = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"}
    with (
        cgroup("cpu", quota, {"cpu.max": "10000 100000"}) as group,
        machine.load("queues", group=group),
    ):
        gpu = machine.diagnose()["gpus"][0]
    assert gpu["causes"] == ["CPU quota used up"], gpu["sentence"]
    assert "raise the quota" in gpu["next_step"]
    allowed = figures(gpu)["cpus_allowed"]
    assert (allowed["value"], allowed["note"]) == (0.1, "cgroup CPU quota")
    assert figures(gpu)["quota_throttled"]["value"] > 50


def test_a_job_that_pages_under_a_memory_limit(
    machine: LoadedMachine, program: Path, tmp_path: Path
) -> None:
    limit = str(100 << 20)
    with (
        slow_file(program, tmp_path / "paged", 1_000) as file,
        cgroup("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit}) as group,
        machine.load("pages", file, group=group),
    ):
        gpu = machine.diagnose()["gpus"][0]
    assert own_causes(gpu) == {"memory-pressure"}, gpu["sentence"]


def test_a_job_on_a_disk_of_few_requests(machine: LoadedMachine, tmp_path: Path) -> None:
    """A real block device; its controller lets 30 reads a second through."""
    file = tmp_path / "data"
    with file.open("wb") as out:
        for _ in range(64):
            out.write(os.urandom(1 << 20))
        out.flush()
        os.fsync(out.fileno())
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    device = f"{os.major(file.stat().st_dev)}:{os.minor(file.stat().st_dev)}"
    if not Path("/sys/dev/block", device).exists():
        pytest.skip(f"this machine has no cgroup to give: no block device below {file}")
    with (
        cgroup(
            "blkio" if Path("/sys/fs/cgroup/blkio").exists() else "io",
            {"blkio.throttle.read_iops_device": f"{device} 30"},
            {"io.max": f"{device} riops=30"},
        ) as group,
        machine.load("reads", file, group=group),
    ):
        gpu = machine.diagnose()["gpus"][0]
    assert gpu["cause"] == "storage-bound", gpu["sentence"]
