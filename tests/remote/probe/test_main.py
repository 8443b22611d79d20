"""The probe as a whole: what a collector does to its own section, and to nothing else."""

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet.evidence.document import decode
from nodevet.evidence.host import HostInfo
from nodevet.evidence.sections import sections
from nodevet.fleet.protocol import exchange, payload
from nodevet.remote import request
from nodevet.remote.probe import main
from nodevet.remote.probe.messages import ANSWER, HEADER, Messages

Run = Callable[..., Any]
PYTHONS = [Path(sys.executable), *sorted((Path.home() / ".pyenv/versions").glob("3.*/bin/python3"))]

COLLECTORS = {
    "good": "def collect(root, request): return {'errors': {}}",
    "hang": """
        import time
        def collect(root, request):
            request["note"]("GPU 6 nvmlDeviceGetPowerUsage")
            time.sleep(600)
        """,
    "stubborn": """
        import signal, time
        def collect(root, request):
            for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(600)
        """,
    "crash": "import os, signal\ndef collect(root, request): os.kill(os.getpid(), signal.SIGSEGV)",
    "leave": "import sys\ndef collect(root, request): sys.exit(3)",
    "flood": "def collect(root, request): return {'errors': {}, 'x': 'x' * (17 << 20)}",
    "chatter": """
        def collect(root, request):
            for _ in range(100_000):
                request["note"]("x" * 500)
            return {"errors": {}}
        """,
    "garbage": """
        import os, stat
        def collect(root, request):
            for descriptor in range(3, 64):
                try:
                    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                        os.write(descriptor, b"no message at all")
                except OSError:
                    pass
        """,
    "print": """
        import os, sys
        def collect(root, request):
            print("noise"); os.write(1, b"noise"); os.write(2, b"noise")
            return {"errors": {}}
        """,
    "nan": "def collect(root, request): return {'errors': {}, 'x': float('nan')}",
    "thing": "def collect(root, request): return {'errors': {}, 'x': object()}",
    "broken": "def collect(root, request): raise RuntimeError('caf\\u00e9 \\ud800')",
    "syntax": "def collect(root, request) return",
    "denied": "def collect(root, request): raise PermissionError(13, 'no', '/proc/x')",
    "absent": """
        from nodevet.remote.probe.files import Absent
        def collect(root, request): raise Absent("none")
        """,
    "unicode": "def collect(root, request): return {'errors': {}, 'x': 'caf\\u00e9 \\udcff'}",
}  # fmt: skip

SERVE = payload.SERVE
PYTHON = [sys.executable, "-I", "-c", payload.BOOT]


def program(collectors: dict[str, str], then: str = SERVE) -> bytes:
    """The probe as a node gets it, with other collectors; a request follows."""
    package = "nodevet.remote.probe.collectors"
    sources = {"nodevet": "", **dict(payload.modules("nodevet.remote", payload.FOLDER))}
    sources = {name: text for name, text in sources.items() if not name.startswith(package + ".")}
    sources |= {f"{package}.{name}": textwrap.dedent(text) for name, text in collectors.items()}
    return payload.pack(sources, then)


def wish(**fields: Any) -> bytes:
    """A request to the probe."""
    return json.dumps({"do": "probe", "nonce": "n", **fields}).encode() + b"\n"


def ask(collectors: dict[str, str], deadline: float = 80, **fields: Any) -> dict[str, Any]:
    """The sections that the probe gathers from these collectors."""
    done = subprocess.run(
        PYTHON,
        input=program(collectors) + wish(deadline=deadline, **fields),
        capture_output=True,
        timeout=deadline + 60,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.isascii()
    document = json.loads(exchange.unframe(done.stdout, "n"), parse_constant=pytest.fail)
    sections: dict[str, Any] = document["sections"]
    return sections


def limit(why: str) -> float:
    """The seconds after which a section timed out."""
    told = re.match(r"timed out after ([\d.]+) s(;|$)", why)
    assert told, why
    return float(told.group(1))


def children_of(pid: int) -> list[int]:
    """The processes whose parent this is, zombies too."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(place.parent.name))
    return found


def ignores(pid: int, number: signal.Signals) -> bool:
    ignored = Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    return bool(int(ignored, 16) >> (number - 1) & 1)


def gone(pids: list[int]) -> bool:
    """Whether these processes end."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_failing_collector_affects_only_its_own_section() -> None:
    quick = {name: text for name, text in COLLECTORS.items() if name not in ("hang", "stubborn")}
    sections = ask(quick)
    for section in sections.values():
        section.pop("seconds", None)
    error = {"status": "error"}
    assert sections == {
        "good": {"status": "ok", "data": {"errors": {}}},
        "print": {"status": "ok", "data": {"errors": {}}},
        "unicode": {"status": "ok", "data": {"errors": {}, "x": "caf\u00e9 \udcff"}},
        "absent": {"status": "absent", "why": "none"},
        "denied": {"status": "denied", "why": "EACCES: /proc/x"},
        "crash": {**error, "why": "the collector was killed by signal 11"},
        "leave": {**error, "why": "the collector ended without an answer"},
        "flood": {**error, "why": "the collector wrote something that is not a message"},
        "chatter": {"status": "ok", "data": {"errors": {}}},
        "garbage": {**error, "why": "the collector wrote something that is not a message"},
        "nan": {**error, "why": sections["nan"]["why"]},
        "thing": {**error, "why": sections["thing"]["why"]},
        "broken": {**error, "why": "RuntimeError: caf\u00e9 \ud800"},
        "syntax": {**error, "why": sections["syntax"]["why"]},
    }
    assert sections["nan"]["why"].startswith("the result is not JSON: ")
    assert sections["thing"]["why"].startswith("the result is not JSON: ")
    assert sections["syntax"]["why"].startswith("SyntaxError: ")


def test_hanging_collectors_time_out_by_the_deadline_and_name_the_last_call() -> None:
    hanging = {
        "hang": COLLECTORS["hang"],
        "deaf": COLLECTORS["stubborn"],
        "late": 'AFTER = ("hang",)' + textwrap.dedent(COLLECTORS["hang"]),
    }
    deadline = min(40.0, 5 * slowness())
    sections = ask(hanging, deadline=deadline)
    assert {section["status"] for section in sections.values()} == {"timeout"}
    assert sections["hang"]["why"].endswith(" s; last: GPU 6 nvmlDeviceGetPowerUsage")
    assert sections["deaf"]["why"].endswith(" s")
    limits = [limit(sections[name]["why"]) for name in ("hang", "deaf", "late")]
    assert limits[0] == limits[1] == pytest.approx(0.8 * deadline, rel=0.05)
    assert 0.1 * deadline < limits[2] < 0.21 * deadline


def test_a_collector_that_comes_after_another_sees_what_it_found() -> None:
    late = """
        AFTER = ("good",)
        def collect(root, request): return request["found"]["good"]["data"]
        """
    sections = ask({"good": COLLECTORS["good"], "late": late})
    assert sections["late"]["data"] == {"errors": {}}


def test_a_hanging_collector_leaves_no_process_and_no_zombie() -> None:
    then = textwrap.dedent("""
        from nodevet.remote.probe.main import probe
        from nodevet.remote.request import checked_request
        found = probe(checked_request({"do": "probe", "deadline": 2}))
        import os
        try:
            os.waitpid(-1, os.WNOHANG)
            print("a child is left")
        except ChildProcessError:
            print("none", sorted(found["sections"]))
        """)
    hanging = {
        "hang": COLLECTORS["hang"],
        "deaf": COLLECTORS["stubborn"],
        "leave": COLLECTORS["leave"],
    }
    done = subprocess.run(
        PYTHON,
        input=program(hanging, then),
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b"none ['deaf', 'hang', 'leave']\n", done.stderr


def test_when_the_probe_is_killed_its_collectors_go_too() -> None:
    hanging = {"hang": COLLECTORS["hang"], "deaf": COLLECTORS["stubborn"]}
    with subprocess.Popen(
        PYTHON,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as probe:
        assert probe.stdin is not None
        probe.stdin.write(program(hanging) + wish(deadline=300))
        probe.stdin.close()
        end = time.monotonic() + 120
        while len(pids := children_of(probe.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(pids) == 2
        while not any(ignores(pid, signal.SIGINT) for pid in pids):
            assert time.monotonic() < end
            time.sleep(0.05)
        probe.send_signal(signal.SIGKILL)
        probe.wait()
    assert gone(pids)


def test_a_failed_fork_makes_only_its_sections_errors() -> None:
    then = textwrap.dedent("""
        from nodevet.remote.probe import children
        fork, left = children.os.fork, [1]
        def refuse():
            if not left:
                raise OSError(11, "Resource temporarily unavailable")
            left.pop()
            return fork()
        children.os.fork = refuse
        """)
    alone = "ALONE = True\n" + COLLECTORS["good"]
    collectors = {"alone": alone, "good": COLLECTORS["good"], "print": COLLECTORS["print"]}
    done = subprocess.run(
        PYTHON,
        input=program(collectors, then + SERVE) + wish(),
        capture_output=True,
        timeout=60,
    )
    sections = json.loads(exchange.unframe(done.stdout, "n"))["sections"]
    assert sections["alone"]["status"] == "ok"
    refused = {"status": "error", "why": "cannot start the collector: EAGAIN"}
    assert sections["good"] == sections["print"] == refused


WHERE = """
    import os
    def collect(root, request):
        free = os.dup(0)
        os.close(free)
        return {"errors": {}, "pid": os.getpid(), "free": free, "cwd": os.getcwd()}
    """
TRACES = {
    "descriptor": "import os\ndef collect(root, request): os.dup(0)",
    "directory": "import os\ndef collect(root, request): os.chdir('/proc')",
    "child": "import os\ndef collect(root, request): os.fork() or os._exit(0)",
    "memory": "def collect(root, request): len(b'x' * (200 << 20))",
    "crash": COLLECTORS["crash"],
    "garbage": COLLECTORS["garbage"],
    "flood": COLLECTORS["flood"],
}


def test_one_child_reads_all_sections_that_need_no_child_of_their_own() -> None:
    sections = ask({"a": WHERE, "b": "ALONE = True" + textwrap.dedent(WHERE), "c": WHERE})
    pids = {name: section["data"]["pid"] for name, section in sections.items()}
    assert pids["a"] == pids["c"] != pids["b"]


@pytest.mark.parametrize("trace", sorted(TRACES))
def test_what_a_collector_leaves_behind_does_not_reach_the_next(trace: str) -> None:
    sections = ask({"a": WHERE, "b": TRACES[trace], "c": WHERE})
    before, after = sections["a"]["data"], sections["c"]["data"]
    assert before.pop("pid") != after.pop("pid")
    # what is left open takes numbers; beside a child that still runs, the next has one more free
    assert after.pop("free") <= before.pop("free")
    assert before == after


def test_slow_sections_are_read_in_parallel() -> None:
    """One after the other these would need 48 s."""
    slow = """
        import time
        def collect(root, request):
            time.sleep(3)
            return {"errors": {}}
        """
    sections = ask({f"slow{number:02}": slow for number in range(16)}, deadline=40)
    assert {section["status"] for section in sections.values()} == {"ok"}


def test_a_section_that_hangs_does_not_affect_others() -> None:
    deadline = min(30.0, 6 * slowness())
    sections = ask({"a": COLLECTORS["hang"], "b": WHERE, "c": WHERE}, deadline=deadline)
    assert sections["a"]["why"].endswith(" s; last: GPU 6 nvmlDeviceGetPowerUsage")
    assert limit(sections["a"]["why"]) == pytest.approx(deadline, rel=0.05)
    assert sections["b"]["status"] == sections["c"]["status"] == "ok"


COUNTING = """
    import time
    COUNTERS = True
    def collect(root, request):
        return {"errors": {}, "at": time.monotonic()}
    """


def sample(collectors: dict[str, str], **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections as they were, and as they are."""
    done = subprocess.run(
        PYTHON,
        input=program(collectors) + wish(**{"deadline": 80, "sample": 1, **fields}),
        capture_output=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr.decode()
    document = json.loads(exchange.unframe(done.stdout, "n"))
    return document["earlier"], document["sections"]


def test_sections_with_counters_are_read_twice() -> None:
    earlier, sections = sample({"a": COUNTING, "b": COLLECTORS["good"]})
    assert set(earlier) == {"a"} and set(sections) == {"a", "b"}
    apart = sections["a"]["data"]["at"] - earlier["a"]["data"]["at"]
    assert earlier["a"]["before_s"] >= 1
    assert apart == pytest.approx(earlier["a"]["before_s"], abs=0.5 * slowness())
    assert "began" not in json.dumps([earlier, sections])
    assert "earlier" not in ask_document({"a": COUNTING})


def test_counters_that_nobody_asks_for_are_not_read_before_a_sample() -> None:
    asked = "ASKED = True\n" + textwrap.dedent(COUNTING)
    earlier, sections = sample({"a": COUNTING, "b": "\n" + asked}, asks={})
    assert set(earlier) == {"a"} and sections["b"]["status"] == "absent"
    earlier, sections = sample({"a": COUNTING, "b": "\n" + asked}, asks={"b": ["x"]})
    assert set(earlier) == {"a", "b"} and sections["b"]["status"] == "ok"


def ask_document(collectors: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        PYTHON, input=program(collectors) + wish(), capture_output=True, timeout=100
    )
    document: dict[str, Any] = json.loads(exchange.unframe(done.stdout, "n"))
    return document


def test_counters_that_are_not_read_twice_say_why() -> None:
    hang = "COUNTERS = True" + textwrap.dedent(COLLECTORS["hang"])
    absent = "COUNTERS = True" + textwrap.dedent(COLLECTORS["absent"])
    earlier, sections = sample(
        {"a": COUNTING, "b": hang, "c": absent}, deadline=min(60.0, 7 * slowness())
    )
    assert earlier["a"]["status"] == "ok" and earlier["a"]["before_s"] >= 1
    assert earlier["b"]["status"] == sections["b"]["status"] == "timeout"
    assert earlier["c"] == {"status": "absent", "why": "none"}
    none, _ = sample({"b": COLLECTORS["good"]})
    assert none == {}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (b"", "truncated"),
        (b'{"do": "probe"}', "truncated"),
        (b"\n", "not JSON"),
        (b"{\n", "not JSON"),
        (b"\xff\n", "not JSON"),
        (b"[" * 100000 + b"\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        (b"{}\n", "`do` is not one of"),
        (wish(do="__init__"), "`do` is not one of"),
        (wish(deadline="soon"), "deadline is not a number"),
        (wish(deadline=float("nan")), "deadline is not between"),
        (wish(deadline=0), "deadline is not between"),
        (wish(root="relative"), "root is not an absolute path"),
        (wish(whole_machine="yes"), "whole_machine is neither true nor false"),
        (wish(sample=-1), "sample is not between"),
        (wish(sample="1"), "sample is not a number"),
        (wish(sections=["os"]), "sections are not among"),
        (wish(nonce="a b"), "nonce is not one word"),
    ],
)
def test_a_request_that_is_not_valid_is_refused_in_one_line(request_: bytes, why: str) -> None:
    done = subprocess.run(
        PYTHON,
        input=program({"good": COLLECTORS["good"]}) + request_,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"nodevet: the request is not valid: " + why.encode())
    assert done.stderr.count(b"\n") == 1


def test_an_answer_without_a_reader_is_dropped() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            PYTHON,
            input=program({"good": COLLECTORS["good"]}) + wish(),
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr == b"nodevet: the answer cannot be written: EPIPE\n"


SLEEPER = """
import time
def collect(root, request):
    time.sleep(1000)
"""


def test_a_late_answer_is_dropped() -> None:
    """What reads ends with whoever asked, and not with the deadline."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(PYTHON, **pipes) as ask:
        assert ask.stdin and ask.stdout and ask.stderr
        ask.stdin.write(program({"sleeper": SLEEPER}) + wish(deadline=300))
        ask.stdin.flush()
        end = time.monotonic() + 60
        while not (lane := children_of(ask.pid)):
            assert time.monotonic() < end
        ask.stdout.close()
        assert ask.stderr.read() == b"nodevet: the answer cannot be written: EPIPE\n"
        assert ask.wait(60) == 1
    assert gone(lane)


def test_a_closed_standard_error_does_not_fail_the_probe() -> None:
    then = "import os\nos.close(2)\n" + SERVE
    done = subprocess.run(
        PYTHON,
        input=program({"good": COLLECTORS["good"]}, then) + wish(),
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert json.loads(exchange.unframe(done.stdout, "n"))["sections"]["good"]["status"] == "ok"


def test_a_missing_root_folder_is_an_error_and_not_an_absent_machine(tmp_path: Path) -> None:
    wanted = {"do": "probe", "root": str(tmp_path / "typo"), "sections": ["pci", "numa"]}
    document = main.probe(request.checked_request(wanted))
    for section in document["sections"].values():
        assert section["status"] == "error"
        assert section["why"].endswith("typo is not a directory")


def test_a_request_is_read_to_its_limit_only() -> None:
    with pytest.raises(request.RequestError, match="longer than 1 MiB"):
        request.receive(io.BytesIO(b'{"x": "' + b"x" * request.LIMIT + b'"}\n'))


ELSEWHERE = ("gpu", "filesystems", "services", "packages")  # no file of the tree tells them
READ = {"ok", "absent"}  # what the node has; what it has not, or was not asked for


@pytest.fixture
def node(node: Path) -> Path:
    (node / "dev/kmsg").write_text("5,0,0,-;Linux version 6.8.0\n")
    return node


def test_the_payload_reads_a_described_node(node: Path, run_payload: Run) -> None:
    document = run_payload(root=str(node), whole=True)
    found = decode(json.dumps(document))
    assert found[HostInfo].data is not None and found[HostInfo].data.hostname == "gpu001"
    for name in document["sections"]:
        section = found[sections()[name]]
        assert section.status == document["sections"][name]["status"], section.why
        assert name in ELSEWHERE or section.status in READ, (name, section.why)


@pytest.mark.parametrize("python", PYTHONS, ids=[path.parts[-3] for path in PYTHONS])
def test_the_payload_runs_in_every_python(node: Path, run_payload: Run, python: Path) -> None:
    sections = run_payload(root=str(node), python=str(python), whole=True)["sections"]
    assert {sections[name]["status"] for name in sections if name not in ELSEWHERE} <= READ
    assert sections["filesystems"]["status"] == "absent"
    assert sections["pci"]["data"]["functions"][0]["address"] == "0000:15:01.0"


def snapshot(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every entry of a tree: mode, size, time of change and content."""
    shown = {}
    for place in sorted(root.rglob("*")):
        status = place.lstat()
        content = place.readlink() if place.is_symlink() else place.is_file() and place.read_bytes()
        digest = hashlib.sha256(repr(content).encode()).hexdigest()
        shown[str(place)] = (status.st_mode, status.st_size, status.st_ctime_ns, digest)
    return shown


def test_the_probe_writes_nothing(node: Path, run_payload: Run) -> None:
    before = snapshot(node)
    run_payload(root=str(node))
    assert snapshot(node) == before


def test_an_answer_before_garbage_in_one_write_is_not_lost() -> None:
    found = Messages()
    whole = HEADER.pack(ANSWER, 2) + b"{}"
    taken = found.take(whole + b"garbage that is no message")
    assert next(taken) == (ANSWER, b"{}")
    with pytest.raises(ValueError, match="not a message"):
        next(taken)
