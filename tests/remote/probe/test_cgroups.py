"""Limits of cgroups, in trees of every layout that kernels and containers show."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.remote.probe import cgroups

Make = Callable[..., cgroups.Cgroup]
V2 = "sys/fs/cgroup"
V1 = "5:cpu,cpuacct:{0}\n4:memory:{0}\n3:cpuset:{0}\n0::/\n"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(text: str, **files: str) -> cgroups.Cgroup:
        for path, content in files.items():
            place = tmp_path / V2 / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content + "\n")
        return cgroups.Cgroup(str(tmp_path.resolve()), text)

    return made


def test_version_2_takes_the_strictest_of_all_levels(make: Make) -> None:
    files = {
        "a/b/cpu.max": "max 100000",
        "a/cpu.max": "400000 100000",
        "a/b/memory.max": "max",
        "a/b/memory.high": "1000",
        "a/memory.max": "2000",
        "a/memory.high": "max",
        "a/cpuset.cpus.effective": "0-3",  # b has not the controller
        "a/b/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 77",
        "a/b/memory.events": "low 0\nhigh 2\nmax 3\noom 0",
    }
    found = make("0::/a/b\n", **files)
    assert (found.v2, found.path, found.cpu_quota()) == (True, "/a/b", 4.0)
    assert (found.memory_limit_b(), found.cpus(), found.memory_events()) == (1000, "0-3", 5)
    assert found.throttling() == {"periods": 10, "throttled": 4, "throttled_us": 77}


def test_version_2_without_a_limit_is_none_and_unreadable_is_an_error(make: Make) -> None:
    found = make("0::/a\n", **{"a/cpu.max": "max 100000", "a/memory.max": "max"})
    assert (found.cpu_quota(), found.memory_limit_b()) == (None, None)
    with pytest.raises(ValueError, match="many"):
        make("0::/a\n", **{"a/cpu.max": "many 100000"}).cpu_quota()
    with pytest.raises(ValueError, match="no max in"):
        make("0::/a\n", **{"a/memory.events": "low 0"}).memory_events()
    with pytest.raises(OSError, match=r"memory\.current"):
        found.memory_used_b()


def test_a_container_whose_path_is_not_below_what_is_mounted(make: Make) -> None:
    files = {"cpu.max": "200000 100000", "memory.max": "5000", "cpuset.cpus.effective": "2-3"}
    found = make("0::/kubepods/pod1/c1\n", **files)
    assert (found.cpu_quota(), found.memory_limit_b(), found.cpus()) == (2.0, 5000, "2-3")
    own = make("0::/\n")
    assert (own.cpu_quota(), own.memory_limit_b()) == (2.0, 5000)


def test_a_process_outside_of_the_cgroup_namespace_is_an_error(make: Make) -> None:
    with pytest.raises(ValueError, match="outside of the probe's cgroup namespace"):
        make("0::/../other\n", **{"cpu.max": "200000 100000"})


def test_version_1_and_hybrid(make: Make) -> None:
    files = {
        "unified/cgroup.procs": "",
        "cpu,cpuacct/job/step/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/job/step/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
        "cpu,cpuacct/job/cpu.cfs_period_us": "50000",
        "cpu,cpuacct/job/step/cpu.stat": "nr_periods 3\nnr_throttled 1\nthrottled_time 5000",
        "memory/job/step/memory.limit_in_bytes": str((1 << 63) - 4096),
        "memory/job/memory.limit_in_bytes": "9000",
        "memory/job/step/memory.failcnt": "7",
        "cpuset/job/step/cpuset.effective_cpus": "8-11",
    }
    found = make(V1.format("/job/step"), **files)
    assert (found.v2, found.path, found.cpu_quota()) == (False, "/job/step", 3.0)
    assert (found.memory_limit_b(), found.memory_events(), found.cpus()) == (9000, 7, "8-11")
    assert found.throttling()["throttled_us"] == 5
    with pytest.raises(ValueError, match="no pressure"):
        found.pressure("cpu")


def test_two_version_1_groups_that_share_only_one_controller_are_distinct(make: Make) -> None:
    rows = [f"2:cpu:{path}\n4:memory:/job\n" for path in ("/slow", "/", "/job")]
    files = {"cpu/slow/cpu.cfs_quota_us": "20000", "cpu/slow/cpu.cfs_period_us": "100000"}
    slow, free, same = (make(row, **files) for row in rows)
    assert {group.path for group in (slow, free, same)} == {"/job"}
    assert slow.name == "memory:/job cpu:/slow" and slow.cpu_quota() == 0.2
    assert free.name == "memory:/job cpu:/" and same.name == "/job"


def test_a_process_in_the_group_of_only_one_controller_has_its_path(make: Make) -> None:
    assert make("2:cpu:/slurm/job_12\n4:memory:/\n").path == "/slurm/job_12"
    assert make("2:cpu:/\n4:memory:/\n").path == "/"


def test_version_1_in_a_container(make: Make) -> None:
    files = {
        "cpu/cpu.cfs_quota_us": "250000",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9000",
    }
    found = make(V1.format("/docker/0123"), **files)
    assert (found.cpu_quota(), found.memory_limit_b()) == (2.5, 9000)


def test_a_version_2_group_may_be_called_memory(make: Make) -> None:
    assert make("0::/memory\n", **{"memory/cpu.max": "100000 100000"}).cpu_quota() == 1.0


def test_a_missing_controller_is_an_error(make: Make) -> None:
    with pytest.raises(ValueError, match="has the controller cpu"):
        make("4:memory:/a\n", **{"memory/a/x": ""}).cpu_quota()
    with pytest.raises(ValueError, match="not mounted"):
        make(V1.format("/a")).cpu_quota()
    with pytest.raises(ValueError, match="not a row"):
        make("nonsense\n")
