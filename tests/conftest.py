"""What every test is held to: it calls only programs that the set-up installs, and where the set-up
ran (`make test` says so in NODEVET_SET_UP) it is skipped for few reasons only. Long modules run
first."""

import gc
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

import preloaded
import pytest
from xdist.workermanage import NodeManager

pytest_plugins = ["both_stores", "left_behind", "postgres", "simulated_fleet", "simulated_nvml"]
PROGRAMS = Path(__file__).parents[1] / ".ci" / "programs"
MAY_SKIP = re.compile(
    "no nvidia-smi, so no GPU|this machine has a (GPU|driver)|no (such )?captures?\\b"
    "|the captures of real machines are not here"
    "|this machine has no cgroup to give"
    "|this machine gives no (loop device|swap|/dev/cpu_dma_latency)\\b"
    "|Chromium comes as a snap on Ubuntu|no container builder|this machine starts no Slurm"
    "|this machine gives no network namespace|this machine shows no thread of the kernel"
)
"""Why a test may be skipped on a machine that is set up: no GPU there, no captures beside it, no
cgroup that may be written, no loop device or swap, no device for the wake-up time of idle CPUs, no
image that `make image` built, no Slurm that starts as Debian's does, no network namespace, or a
container without the kernel's threads."""


def listed() -> frozenset[str]:
    """The names of the programs that `.ci/setup` installs, or that every machine has."""
    rows = PROGRAMS.read_text(encoding="utf-8").splitlines()
    return frozenset(row.split()[0].rsplit("/", 1)[-1] for row in rows if row[:1] not in {"#", ""})


def unlisted(program: str) -> str:
    """The name of a program that no list has; empty for one that is listed, or is the test's own.

    >>> unlisted("/usr/bin/cat")
    ''
    >>> unlisted("cowsay")
    'cowsay'
    """
    unpacked = "/var/cache/nodevet/node-tools"  # by .ci/node-tools
    own = (sys.prefix, sys.base_prefix, gettempdir(), str(Path.home() / ".pyenv"), unpacked)
    if not program or program.startswith(tuple(f"{place}/" for place in own)):
        return ""
    name = program.rsplit("/", 1)[-1]
    return "" if name in _LISTED or not _exists(program) else name


def _exists(program: str) -> bool:
    """Whether it can be run at all: some tests call what is not there, on purpose."""
    folders = [""] if "/" in program else os.environ.get("PATH", "").split(":")
    return any(os.access(Path(folder, program), os.X_OK) for folder in folders)


def _hold(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook; see sys.audit: `subprocess.Popen` has (executable, args, cwd, env)."""
    if event != "subprocess.Popen" or "PYTEST_CURRENT_TEST" not in os.environ:
        return
    if name := unlisted(os.fsdecode(args[0] or "")):
        raise AssertionError(f"{name} is called by a test: name it in .ci/programs")


_LISTED = listed()
sys.addaudithook(_hold)


STATE: pytest.StashKey[str] = pytest.StashKey()


def heed_signals() -> None:
    """Programs that tests start end on Ctrl-C also where the suite was started by nohup, or in the
    background of a script: what is ignored here, and only that, they would ignore as well."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """What nodevet keeps of its runs goes nowhere near the home folder: also what is run by
    fixtures that several tests share."""
    heed_signals()
    sys.dont_write_bytecode = False  # until all is collected
    NodeManager.EXIT_TIMEOUT = 300  # a worker that is interrupted ends its test and its nodes
    preloaded.use()
    config.stash[STATE] = os.environ["XDG_STATE_HOME"] = mkdtemp(prefix="nodevet-state-")
    os.environ.pop("NODEVET_STORE", None)


def pytest_sessionstart(session: pytest.Session) -> None:
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        session.config.pluginmanager.register(FailuresAtOnce(reporter))


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Tests say nothing about the clock: an example of a property may take any time. The examples
    are the same in every run, so that no change is refused by chance; `make fuzz` makes others."""
    if b"from hypothesis import" in module_path.read_bytes():
        _settle_examples()


@cache
def _settle_examples() -> None:
    """Import hypothesis, which takes longer than most tests, if a module needs it."""
    from hypothesis import HealthCheck, settings

    fuzz = "NODEVET_FUZZ" in os.environ
    clocks = [HealthCheck.too_slow]
    settings.register_profile(
        "suite", deadline=None, derandomize=not fuzz, suppress_health_check=clocks
    )
    settings.load_profile("suite")


class FailuresAtOnce:
    """Names each failure as it happens: a long run need not end before somebody reads them."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.write_line(f"FAILED in {report.when}: {report.nodeid}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[STATE], ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_state(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _tests: Iterator[int]
) -> None:
    """No test finds what another one left."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{request.config.stash[STATE]}/{next(_tests)}")


@pytest.fixture(scope="session")
def _tests() -> Iterator[int]:
    return count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Where the set-up ran, a skip for want of something is a fault of the set-up."""
    report: pytest.TestReport = yield
    if report.skipped and os.environ.get("NODEVET_SET_UP") and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
        if not MAY_SKIP.search(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped where `make test` has set up everything: {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Any:
    """No garbage collection looks at what is being collected: it stays, all of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


KEEPS_NO_BYTECODE = sys.dont_write_bytecode


def pytest_collection_finish() -> None:
    """No garbage collection looks at 16,000 items again. The tests' own modules are kept compiled,
    also on a machine that keeps no bytecode: pytest takes two thirds of the time to collect for
    that. What tests import is not."""
    sys.dont_write_bytecode = KEEPS_NO_BYTECODE
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules begin in the order of the time that their tests may take, the longest first, so that
    no worker is left with a fleet of nodes at the end. A module's tests stay together, as they are
    written."""
    allowed: dict[str, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        module = item.nodeid.partition("::")[0]
        allowed[module] = max(allowed.get(module, 0), mark.args[0] if mark else 0)
    items.sort(key=lambda item: -allowed[item.nodeid.partition("::")[0]])
