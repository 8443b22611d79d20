"""NCCL's RAS port: asked only if it belongs to the job, NCCL is new enough and has run for minutes.

tests/rigs/ras_server.py stands in for NCCL: real processes, files and sockets, but no NCCL.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from far_processes import wait_for
from ras_server import JOB, Server, answer, group, report, serving

from nodevet.diagnose import launches
from nodevet.evidence.document import decode
from nodevet.evidence.nccl_ras import NcclRas
from nodevet.evidence.process_activity import ProcessActivities
from nodevet.remote.probe import nccl_listener, ras_client
from nodevet.remote.probe.collectors import nccl_ras
from nodevet.remote.probe.main import probe

Check = Callable[[str, dict[str, Any]], Any]
NEW, OLD = "lib/libnccl.so.2.29.2", "lib/libnccl.so.2.28.9"
DIALOG = "CLIENT PROTOCOL 2; TIMEOUT 5; SET FORMAT json; VERBOSE STATUS"


@pytest.fixture(autouse=True)
def old_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that have just begun are old enough, and a busy machine has time."""
    monkeypatch.setattr(nccl_listener, "YOUNG_S", -1.0)
    monkeypatch.setattr(nccl_listener, "FILES_S", 100.0)
    monkeypatch.setattr(ras_client, "ANSWER_S", 100.0)
    monkeypatch.setattr(ras_client, "PARSE_S", 100.0)


def collected(server: Server | None, **more: Any) -> dict[str, Any]:
    wish = {"seconds": 0.3, "interval": 0.3, "job_ids": [f"Slurm {JOB}"], "hosts": ["127.0.0.1"]}
    wish |= {"port": server.port if server else 1, "step": "", "uid": None, **more}
    return nccl_ras.collect("/", {"asks": {"nccl_ras": [wish]}})


def test_a_job_is_asked_at_the_first_look_and_at_the_last(tmp_path: Path, check: Check) -> None:
    for number in range(3):
        answer(tmp_path, number, report=report([group({0: 5 + number, 1: 5}, [2])]))
    with serving(tmp_path, tmp_path / NEW) as server:
        found = check("nccl_ras", collected(server))
    assert server.received_lines == ["connected", DIALOG] * 2
    assert (found.not_asked, found.nccl, found.errors) == ("", "2.29.2", {})
    first, last = found.answers
    assert first.at_s < 0.3 <= last.at_s and first.left_out == 0
    (one,) = last.communicators
    assert (one.hash, one.size) == ("0xa1:0xb2:0xc3", 3)
    assert [(rank.pid, rank.launched) for rank in one.ranks] == [
        (10, {"AllReduce": 6}),
        (11, {"AllReduce": 5}),
    ]
    assert [(rank.rank, rank.unresponsive, rank.considered_dead) for rank in one.missing] == [
        (2, True, False)
    ]


def test_the_probe_reads_it_beside_the_other_sections_that_watch(tmp_path: Path) -> None:
    for number in range(2):
        answer(tmp_path, number, report=report([group({0: 5})]))
    with serving(tmp_path, tmp_path / NEW) as server:
        wish = {"seconds": 1.0, "interval": 0.5, "job_ids": [f"Slurm {JOB}"]}
        port = {"hosts": ["127.0.0.1"], "port": server.port}
        asks = {"process_activity": [wish], "nccl_ras": [{**wish, **port}]}
        document = probe({**request(asks), "sections": ["nccl_ras", "process_activity"]})
        silent = probe({**request({}), "sections": ["nccl_ras"]})
    found = decode(json.dumps(document))
    data = found[NcclRas].data
    assert data is not None and data.answers is not None and len(data.answers) == 2
    assert found[ProcessActivities].status == "ok"
    assert silent["sections"]["nccl_ras"]["status"] == "absent"
    assert len(server.received_lines) == 4


def request(asks: dict[str, Any]) -> dict[str, Any]:
    return {"root": "/", "deadline": 200.0, "sample": 0.0, "asks": asks}


def unasked(server: Server, **more: Any) -> str:
    """Why the node did not ask; the server saw no connection."""
    found = collected(server, **more)
    assert (server.received_lines, found["answers"]) == ([], [])
    why = found["not_asked"]
    assert isinstance(why, str)
    return why


def test_an_older_nccl_is_not_asked(tmp_path: Path) -> None:
    with serving(tmp_path, tmp_path / OLD) as server:
        assert "NCCL 2.28.9 is older than 2.29.2" in unasked(server)


def test_a_job_in_its_first_minutes_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_listener, "YOUNG_S", 180.0)
    with serving(tmp_path, tmp_path / NEW) as server:
        assert re.match("a process that listens began only [0-9]+ s ago", unasked(server))


@pytest.mark.parametrize(
    ("libraries", "why"),
    [
        ((), "it has mapped no file libnccl.so.2"),
        (("lib/libnccl.so.2",), "neither the name of the file nor a package beside it has it"),
        (("lib/libnccl.so.2.29.2.evil",), "it has mapped no file libnccl.so.2"),
        ((NEW, "lib/libnccl.so.2.30.1"), "it has mapped several: 2.29.2, 2.30.1"),
        (("site/nvidia/nccl/lib/libnccl.so.2",), "0 packages of NCCL are beside the file"),
    ],
)
def test_an_unknown_version_is_not_asked(
    tmp_path: Path, libraries: tuple[str, ...], why: str
) -> None:
    with serving(tmp_path, *(tmp_path / library for library in libraries)) as server:
        assert unasked(server) == f"nodevet could not read its version of NCCL: {why}"


@pytest.mark.parametrize(
    ("packages", "version"),
    [
        (("nvidia_nccl_cu13-2.29.7.dist-info",), "2.29.7"),
        (("nvidia_nccl_cu12-2.29.3.post1.dist-info", "nvidia_nccl_cu12-9;rm.dist-info"), "2.29.3"),
        (("nvidia_nccl_cu12-2.29.3.dist-info", "nvidia_nccl_cu13-2.30.1.dist-info"), ""),
        (("nvidia_nccl_cu12-2.27.5.dist-info",), ""),
    ],
)
def test_the_version_of_a_wheel_is_that_of_its_metadata(
    tmp_path: Path, packages: tuple[str, ...], version: str
) -> None:
    for package in packages:
        (tmp_path / "site" / package).mkdir(parents=True)
    answer(tmp_path, 0, report=report([]))
    answer(tmp_path, 1, report=report([]))
    with serving(tmp_path, tmp_path / "site/nvidia/nccl/lib/libnccl.so.2") as server:
        found = collected(server)
    assert found["nccl"] == (version or None)
    assert bool(server.received_lines) == bool(version) != bool(found["not_asked"])


def test_a_child_that_a_rank_forked_is_not_young(tmp_path: Path) -> None:
    """It holds the socket of its parent, too."""
    answer(tmp_path, 0, report=report([]))
    with serving(tmp_path, tmp_path / NEW, mode="forks") as server:
        (inode,) = nccl_listener.sockets_at(
            f"/proc/{server.process.pid}/", {"hosts": ["127.0.0.1"], "port": server.port}
        )[1]
        wish = {"job_ids": [f"Slurm {JOB}"]}
        processes = nccl_listener.processes_of("/", wish)
        assert len(processes) == 2
        owners = nccl_listener.owners_of({inode}, processes)
        assert owners[inode].pid == server.process.pid
    wait_for(lambda: not nccl_listener.processes_of("/", wish))  # the child ends after its parent


def test_ranks_with_different_versions_are_not_asked(tmp_path: Path) -> None:
    with serving(tmp_path, tmp_path / NEW) as server:
        near = f"127.0.0.1:{server.port}"
        other = tmp_path / "lib/libnccl.so.2.30.1"
        with serving(tmp_path / "b", other, rank=1, address=near):
            assert unasked(server).endswith("several versions of NCCL: 2.29.2, 2.30.1")


def test_a_listener_of_another_job_is_not_asked(tmp_path: Path) -> None:
    with (
        serving(tmp_path, tmp_path / NEW, job="7") as server,
        serving(tmp_path / "b", tmp_path / NEW, address=":0"),
    ):
        assert unasked(server) == nccl_listener.FOREIGN
        assert unasked(server, hosts=["::1"]) == nccl_listener.NOBODY
        assert unasked(server, port=1) == nccl_listener.NOBODY


def test_a_port_that_another_job_shares_is_not_asked(tmp_path: Path) -> None:
    with (
        serving(tmp_path, tmp_path / NEW) as server,
        serving(tmp_path / "b", tmp_path / NEW, job="7", address=f"127.0.0.1:{server.port}"),
    ):
        assert unasked(server) == nccl_listener.FOREIGN


@pytest.mark.parametrize(
    "other", [{"job_ids": [f"Slurm {JOB[:-1]}"]}, {"step": "3"}, {"uid": os.geteuid() + 1}]
)
def test_only_processes_of_the_job_count(tmp_path: Path, other: dict[str, Any]) -> None:
    with serving(tmp_path, tmp_path / NEW) as server:
        assert unasked(server, **other) == nccl_listener.NO_FIRST == launches.NO_FIRST


def test_only_the_host_of_rank_0_asks(tmp_path: Path) -> None:
    with serving(tmp_path, tmp_path / NEW, rank=1) as server:
        assert unasked(server) == nccl_listener.NO_FIRST


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("garbage", "it does not answer CLIENT PROTOCOL 2 as NCCL does"),
        ("endless line", "it does not speak the protocol of NCCL's RAS"),
        ("silent", "no whole answer within 13 s"),
        ("drips", "no whole answer within 13 s"),
        ("endless", "the answer is longer than 0 MiB"),
        ("no json", "it does not answer SET FORMAT json as NCCL does"),
        ("not json", "the answer is not JSON"),
        ("deep", "the answer is nested too deeply"),
        ("long number", "the answer is not JSON"),
        ("nothing", "the answer is not JSON"),
    ],
)
def test_after_a_bad_answer_nothing_is_asked_again(
    tmp_path: Path, mode: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ras_client, "ANSWER_S", 1.0 if mode in ("silent", "drips") else 100.0)
    if mode == "endless":
        monkeypatch.setattr(ras_client, "LARGEST", 1 << 19)
    with serving(tmp_path, tmp_path / NEW, mode=mode) as server:
        found = collected(server)
        wait_for(lambda: server.received_lines)
    assert (found["answers"], found["errors"]["answers"]) == ([], why)
    assert server.received_lines.count("connected") == 1


def test_a_listener_that_is_gone_is_not_asked_again(tmp_path: Path) -> None:
    answer(tmp_path, 0, report=report([group({0: 1})]))
    with serving(tmp_path, tmp_path / NEW, mode="once") as server:
        found = collected(server)
    assert len(found["answers"]) == 1 and found["errors"]["answers"] == nccl_listener.NOBODY


def test_a_port_of_ipv6(tmp_path: Path) -> None:
    answer(tmp_path, 0, report=report([]))
    answer(tmp_path, 1, report=report([]))
    with serving(tmp_path, tmp_path / NEW, address="[::1]:0") as server:
        assert len(collected(server, hosts=["127.0.0.1", "::1"])["answers"]) == 2


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"),
    reason="this machine gives no network namespace",
)
def test_a_port_in_the_network_namespace_of_a_container(tmp_path: Path) -> None:
    own = Path("/proc/self/ns/net").readlink()
    apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    answer(tmp_path, 0, report=report([]))
    answer(tmp_path, 1, report=report([]))
    with serving(tmp_path, tmp_path / NEW, prefix=apart) as server:
        assert len(collected(server)["answers"]) == 2
    assert Path("/proc/self/ns/net").readlink() == own


def read(value: Any) -> Any:
    return ras_client.report(json.dumps(value, indent=2).encode())


def test_a_comma_that_nccl_forgets_is_added() -> None:
    text = json.dumps(report([group({0: 1}, [1])]), indent=2)
    broken = re.sub(r'("nvml_dev": 1),', r"\1", text)
    assert broken != text and ras_client.report(broken.encode()) == ras_client.report(text.encode())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": True}, "no valid size"),
        ({"size": -1}, "no valid size"),
        ({"hash": None}, "no valid hash"),
        ({"ranks": "0-7"}, "no valid ranks"),
        ({"ranks": [1]}, "no valid ranks"),
        ({"ranks": [{"rank": 1}]}, "no valid collective_counts"),
        ({"missing_ranks": [{"rank": 1 << 63}]}, "no valid rank"),
        ({"missing_ranks": [{"rank": 0, "host": "a", "pid": 1}]}, "names one rank twice"),
    ],
)
def test_an_answer_with_odd_values_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(report([group({0: 1}, **change)]))


@pytest.mark.parametrize("value", [[], {}, {"communicators": {}}, {"communicators": [[]]}, 7])
def test_an_answer_of_another_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="no valid communicators"):
        read(value)


def test_counts_of_many_or_odd_kinds_are_refused() -> None:
    for counts in ({str(number): 1 for number in range(17)}, {"AllReduce": "1"}, []):
        odd = group({0: 1})
        odd["ranks"][0]["collective_counts"] = counts
        with pytest.raises(ValueError, match="no valid"):
            read(report([odd]))


def test_two_communicators_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="names one hash twice"):
        read(report([group({0: 1}), group({0: 1})]))


def test_of_too_many_ranks_the_largest_communicators_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ras_client, "RANKS", 7)
    sizes = {"0x1": 2, "0x2": 3, "0x3": 2}
    groups = [group(dict.fromkeys(range(size), 1), name=name) for name, size in sizes.items()]
    found = read(report(groups))
    assert [each["size"] for each in found["communicators"]] == [3, 2]
    assert found["left_out"] == 1


def test_an_answer_never_costs_the_rest_of_the_evidence() -> None:
    """Names of collectives are long, or there are many communicators without a rank."""
    full = group(dict.fromkeys(range(2000), 1))
    for rank in full["ranks"]:
        rank["collective_counts"] = {f"{kind:x>99}": 1 << 62 for kind in range(16)}
    with pytest.raises(ValueError, match="too much to keep"):
        read(report([full]))
    found = read(report([group({}, name=str(number)) for number in range(9000)]))
    assert (len(found["communicators"]), found["left_out"]) == (8192, 808)


def test_a_large_job_is_kept_whole(check: Check) -> None:
    whole = group(dict.fromkeys(range(4096), 123456), name="all")
    pairs = [group({0: 1, 1: 1}, name=f"0x{number:x}") for number in range(1024)]
    found = read(report([*pairs, whole]))
    assert found["left_out"] == 0 and len(json.dumps(found)) < ras_client.KEPT
    found["at_s"] = 0.0
    assert check("nccl_ras", {"errors": {}, "not_asked": "", "nccl": "2.29.2", "answers": [found]})


def test_long_texts_are_cut() -> None:
    odd = group({0: 1}, name="x" * 9999)
    odd["ranks"][0]["host"] = "\x1b[31m" * 999
    (one,) = read(report([odd], nccl_version="v" * 999))["communicators"]
    assert len(one["hash"]) < 300 and len(one["ranks"][0]["host"]) == ras_client.TEXT
