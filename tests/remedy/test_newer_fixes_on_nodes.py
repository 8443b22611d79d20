"""What strikes the fixes of fabric, IMEX, DCGM, GPUDirect, clock, limits, huge pages and CPUs, on
a real node: programs that lie, a full disk, other managers, lost sessions and lost power.

TuneD, chrony and systemd-timesyncd are real. Whatever strikes, the node is as planned, or exactly
as it was, and the outcome says which.
"""

import os
import random
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_nodes import QUIET, Executor, Node, after_acts, at_act, faulty_nodes
from msgspec.structs import replace
from shown_folders import leader
from time_clients import SERVER, put_clients
from tuned_on_node import START, put_tuned

from nodevet.fix.plan.planner import Proposal
from nodevet.fixing.result import HostResult, Outcome, Refusal
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = r"""
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    cpufreq: {driver: intel_pstate}
    governor: powersave
    nics: 1
    nic_kind: infiniband
    nvlink_domain: 2
    modules: {nvidia_peermem: available}
    faults: [cpu-capped, turbo-off, clock-unsynchronised, idle-deep]
    nvml: {gpu.*.fabric.state: NOT_STARTED}
    files:
      /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages: "8\n"
      /sys/kernel/mm/transparent_hugepage/enabled: "[always] madvise never\n"
"""
BASELINE = """\
nodevet: 1
expect:
  fabric: {}
  imex: {}
  dcgm: true
  gpudirect: {one_of: [peermem]}
  time_sync: {}
  limits: {of: [site.service, login], minimum_memlock_b: unlimited}
  hugepages: {total: {2M: 16}}
  cpu_frequency: {turbo: true, minimum_mhz: 1200}
  cpu_idle_states: 10
  cpu_governor: performance
  transparent_hugepage: madvise
  leftover_processes: {}
fix: [fabric, imex, dcgm, gpudirect, time_sync, limits, hugepages, cpu_frequency, cpu_idle_states,
  cpu_governor, transparent_hugepage, leftover_processes]
"""
UNITS = "/etc/systemd/system"
FABRIC, IMEX, DCGM = "nvidia-fabricmanager", "nvidia-imex", "nvidia-dcgm"
CPUS, PAGES = "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
HIGHEST, LOWEST = (f"{CPUS}/cpufreq/policy0/scaling_{word}_freq" for word in ("max", "min"))
TURBO = f"{CPUS}/intel_pstate/no_turbo"
NVML, CLOCK = "/run/nodevet-sim/nvml.state", "/run/nodevet-sim/adjtimex"
LIMITS = f"{UNITS}/site.service.d/90-nodevet-limits.conf"
LOGINS = "/etc/security/limits.d/90-nodevet-limits.conf"
SERVICES = f"site {FABRIC} {IMEX} {DCGM} chrony systemd-timesyncd nodevet-cpu-idle-states"
UP = r"""
cd /etc/systemd/system; mkdir -p nvidia-fabricmanager.service.d
printf '[Service]\nExecStartPost=%s\n' \
    '/bin/sed -i "s/fabric.state *=.*/fabric.state = COMPLETED/" /run/nodevet-sim/nvml.state' \
    >nvidia-fabricmanager.service.d/t.conf
printf '[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' \
    >/usr/lib/systemd/system/site.service
printf '%s\n' '[Service]' 'ExecStartPre=/bin/rm -f /run/blind' 'ExecStart=/bin/sleep infinity' \
    '[Install]' WantedBy=multi-user.target >/usr/lib/systemd/system/nvidia-dcgm.service
cat >/usr/sbin/dcgmi <<'END'
#!/bin/sh
case $1 in
health) echo '{"body": {"Overall Health": {"value": "Healthy"}}, "header": []}' ;;
discovery) [ -e /run/blind ] && echo 0 GPUs found. || echo 1 GPUs found. ;;
esac
END
chmod 755 /usr/sbin/dcgmi; systemctl daemon-reload; systemctl enable --now -q site nvidia-dcgm
systemctl disable --now -q nvidia-fabricmanager nvidia-imex
"""
STATE = f"""\
find /etc -printf '%p %y %m %U:%G %l\\n' | sort
find /etc/systemd /etc/tmpfiles.d /etc/security /etc/modules-load.d -type f -print0 | sort -z |
    xargs -0 sha256sum
cd {CPUS}; head {HIGHEST} {LOWEST} {TURBO} {PAGES}
systemctl show -p Id,LoadState,UnitFileState,ActiveState {SERVICES} | sed s/=failed/=inactive/
lsmod | sort; ls /dev
"""
WRONG = f"""\
echo 5 0x2041 16000000 16000000 >{CLOCK}; chmod 666 {CLOCK}; touch /run/blind
sed -i 's/fabric.state *=.*/fabric.state = NOT_STARTED/' {NVML}
"""
"""What no rollback makes wrong again."""
CALM = "pkill -F /run/ntp-server.pid 2>/dev/null; systemctl reset-failed"
RESET = f"""\
pkill -F /run/ntp-server.pid 2>/dev/null
systemctl disable --now -q nodevet-cpu-idle-states {FABRIC} {IMEX} chrony 2>/dev/null
rm -rf {UNITS}/nodevet-cpu-idle-states.service {UNITS}/site.service.d {LOGINS}
rm -f /etc/tmpfiles.d/nodevet-hugepages.conf /etc/tmpfiles.d/nodevet-later-cpu-frequency.conf
rm -f /etc/modules-load.d/nodevet-*; rmmod nvidia_peermem 2>/dev/null
systemctl daemon-reload; systemctl enable -q --now site {DCGM}; systemctl reset-failed
echo 1 >{TURBO}; echo 8 >{PAGES}
"""
UNDO = f"""\
rm -rf {UNITS}/site.service.d /etc/security/limits.d/99-site.conf /etc/sysctl.d/9-a.conf
rm -f /etc/modules-load.d/nodevet-gpudirect.conf /etc/modprobe.d/a.conf
systemctl unmask -q {FABRIC} {DCGM} chrony; systemctl mask -q systemd-timesyncd
"""
"""What persons did in a test."""
KILLED = ("limits", "hugepages", "cpu_frequency")
FULL = """\
mkdir -p /run/was; cp -a {0}/. /run/was; mount -t tmpfs -o size=256k full {0}; cp -a /run/was/. {0}
cat /dev/zero >{0}/full 2>/dev/null; true
"""


@pytest.fixture(scope="module")
def fleet(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> SimulatedFleet:
    fleet = boot("newer", SCENARIO, BASELINE)
    fleet.run_on("n1", UP)
    put_clients(fleet, "n1", tmp_path_factory.mktemp("clock"))
    put_tuned(fleet, "n1")
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1}\n")
    return fleet


@pytest.fixture(scope="module")
def nodes(fleet: SimulatedFleet) -> Iterator[dict[str, Node]]:
    high, low = fleet.run_on("n1", f"cat {HIGHEST} {LOWEST}").split()
    reset = f"{RESET}echo {low} >{LOWEST}; echo {high} >{HIGHEST}"
    with faulty_nodes(fleet, KILLED, state=STATE, reset=reset) as nodes:
        yield nodes


@pytest.fixture
def node(nodes: dict[str, Node]) -> Iterator[Node]:
    """The node with all that is wrong; afterwards it is as before the test."""
    one = nodes["n1"]
    one.terms = replace(one.terms, drain_hook="true", boot_settle=1)
    one.shell(WRONG)
    one.before = one.before or one.state()
    yield one
    one.put_back(CALM)


def difference(now: str, before: str) -> set[str]:
    return set(now.splitlines()) ^ set(before.splitlines())


def is_as_before(node: Node) -> bool:
    assert difference(node.state(), node.before) == set()
    return node.touched() == []


def conflict(made: Proposal) -> str:
    """Why a fix is not planned."""
    assert not made.plan.steps
    (found,) = made.plan.conflicts
    return f"{found.why}; {found.advice}"


# --- programs that do not do what they say ------------------------------------------------------


@pytest.mark.parametrize(
    ("fix", "lie", "told"),
    [
        ("gpudirect", ("modprobe", "lies", "nvidia_peermem"), "nvidia_peermem"),
        ("gpudirect", ("modprobe", "fails", "nvidia_peermem"), "ended with 9"),
        ("hugepages", ("dd", "fewer", "nr_hugepages"), "total: 12, expected total: 16"),
        ("cpu_frequency", ("dd", "lies", "scaling_max_freq"), "MHz"),
        ("limits", ("systemctl", "fails", "restart"), "ended with 9"),
        ("fabric", ("systemctl", "lies", "restart"), f"{FABRIC}.service"),
        ("dcgm", ("systemctl", "lies", "restart"), "the check says"),
        ("time_sync", ("chronyc", "lies", ""), "the check says: not synchronised"),
        ("time_sync", ("chronyc", "fails", "makestep"), "makestep: ended with 9"),
    ],
)
def test_a_fix_fails_if_its_program_exits_0_and_does_nothing(
    node: Node, fix: str, lie: tuple[str, str, str], told: str
) -> None:
    plan = node.plan(fix)
    node.lie(*lie)
    if lie[2] == "makestep":
        node.shell(SERVER)
    result = node.apply(plan)
    node.shell("rm /run/hook/lie")
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert is_as_before(node)


# --- lost sessions ---------------------------------------------------------------------------


@pytest.mark.parametrize("fix", ["dcgm", "gpudirect", "time_sync"])
def test_a_connection_cut_at_or_after_the_last_action_leaves_a_consistent_node(
    node: Node, fix: str
) -> None:
    """And a second run changes nothing. Units that start: test_faults_on_nodes.py; the others are
    killed below."""
    server = SERVER if fix == "time_sync" else "true"
    node.shell(server)
    plan = node.plan(fix)
    assert node.apply(plan).outcome is Outcome.CHANGED
    done = node.shell(QUIET + STATE)
    assert node.apply(plan).outcome is Outcome.UNCHANGED and node.state() == done
    acts = sum(len(step.actions) for step in plan.steps)
    for number in (acts, acts + 1):  # the last one, and after it
        node.reset()
        node.shell(f"{WRONG}{server}")
        assert node.state() == node.before
        when = after_acts(acts, "look") if number > acts else at_act(number)
        result = node.apply(node.plan(fix), Executor(node.worker, when, node.proxy.cut))
        assert not amiss(result, node.state(), node.before, done), (number, result)


def amiss(result: HostResult, now: str, before: str, done: str) -> set[str]:
    """How the node differs from what the outcome says."""
    expected = {Outcome.CHANGED: done, Outcome.FAILED: before, Outcome.REFUSED: before}
    return difference(now, expected[result.outcome])


# --- a full disk of the node --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fix", "folder"),
    [("cpu_idle_states", UNITS), ("gpudirect", "/etc/modules-load.d")],
)
def test_a_fix_fails_on_a_full_disk_and_leaves_no_file_behind(
    node: Node, fix: str, folder: str
) -> None:
    plan = node.plan(fix)
    node.shell(FULL.format(folder))
    result = node.apply(plan)
    listed = node.shell(f"ls -A {folder}; umount {folder}; systemctl daemon-reload")
    assert result.outcome is Outcome.FAILED and "No space left on device" in result.why, result
    assert not [name for name in listed.split() if name in ("nodevet-cpu-idle-states.service",
                "nodevet-gpudirect.conf", "site.service.d")]  # fmt: skip
    assert is_as_before(node)


def test_a_failed_idle_state_fix_leaves_no_file_in_place_of_a_missing_device(node: Node) -> None:
    """A shell that opens it for writing makes one, and the unit would run."""
    result = node.apply(node.plan("cpu_idle_states"))
    assert result.outcome is Outcome.FAILED, result
    assert "nodevet-cpu-idle-states.service" in result.why
    assert is_as_before(node)


# --- what a person or another manager did since the plan -----------------------------------------


@pytest.mark.parametrize(
    ("fix", "change", "outcome", "told"),
    [
        ("cpu_frequency", f"echo 0 >{TURBO}", Outcome.REFUSED, ""),
        ("hugepages", f"echo 9 >{PAGES}", Outcome.REFUSED, ""),
        ("hugepages", "echo vm.nr_hugepages=8 >/etc/sysctl.d/9-a.conf", Outcome.REFUSED, "9-a.con"),
        ("gpudirect", "modprobe nvidia_peermem", Outcome.UNCHANGED, ""),
        (
            "gpudirect",
            "echo '# mine' >/etc/modules-load.d/nodevet-gpudirect.conf",
            Outcome.REFUSED,
            "nodevet-gpudirect.conf",
        ),
        (
            "gpudirect",
            "echo blacklist nvidia_peermem >/etc/modprobe.d/a.conf",
            Outcome.REFUSED,
            "/etc/modprobe.d/a.conf:1",
        ),
        ("limits", f"mkdir {LIMITS[:-23]}; echo >{LIMITS}", Outcome.REFUSED, LIMITS),
        ("limits", "systemctl stop site", Outcome.REFUSED, ""),
        ("fabric", f"systemctl mask -q {FABRIC}", Outcome.REFUSED, "it is masked on purpose"),
        ("dcgm", f"systemctl stop {DCGM}", Outcome.REFUSED, "does not run"),
        ("time_sync", "systemctl mask -q chrony", Outcome.REFUSED, "chrony.service: it is masked"),
        (
            "time_sync",
            "systemctl unmask -q systemd-timesyncd",
            Outcome.REFUSED,
            "chrony and systemd-timesyncd are installed",
        ),
    ],
)
def test_changes_by_a_person_since_the_plan_are_not_touched(
    node: Node, fix: str, change: str, outcome: Outcome, told: str
) -> None:
    before, plan = node.before, node.plan(fix)
    node.shell(change)
    node.before = node.state()
    result = node.apply(plan)
    assert result.outcome is outcome and told in result.why, result
    assert is_as_before(node)
    node.shell(UNDO)
    node.before = before


@pytest.mark.parametrize(
    ("fix", "rival", "told"),
    [
        (
            "limits",
            "echo '* soft memlock 64' >/etc/security/limits.d/99-site.conf",
            "memlock unlimited",
        ),
        (
            "limits",
            f"mkdir {UNITS}/site.service.d; printf '# Ansible managed\n[Service]\n"
            f"LimitMEMLOCK=64K\n' >{UNITS}/site.service.d/99-site.conf; systemctl daemon-reload",
            "memlock unlimited",
        ),
    ],
    ids=["limits.d", "drop-in"],
)
def test_a_step_is_rolled_back_if_a_later_file_overrides_its_setting(
    node: Node, fix: str, rival: str, told: str
) -> None:
    before = node.before
    node.shell(rival)
    node.before = node.state()
    plan = node.plan(fix)
    result = node.apply(plan)
    assert result.outcome is Outcome.FAILED and told in result.why, result
    if node.touched():
        assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert is_as_before(node)
    node.shell(UNDO)
    node.before = before


# --- units -------------------------------------------------------------------------------------

DYING = {
    "does-not-start": "ExecStartPre=/bin/false",
    "dies-again-and-again": "ExecStart=\nExecStart=/bin/false\nRestart=always\nRestartSec=100ms",
    "is-skipped": "[Unit]\nConditionPathExists=/nowhere",
    "dies-later": "ExecStart=\nExecStart=/bin/sleep 0.5",
}


@pytest.mark.parametrize(
    ("fix", "how"),
    [
        ("fabric", "dies-again-and-again"),
        ("dcgm", "does-not-start"),
        ("fabric", "is-skipped"),
        ("limits", "dies-later"),
    ],
)
def test_a_step_fails_if_its_unit_does_not_stay_running(node: Node, fix: str, how: str) -> None:
    """An administrator's drop-in, written since the plan, does it."""
    unit = {"fabric": FABRIC, "dcgm": DCGM, "limits": "site"}[fix]
    plan, file = node.plan(fix), f"{UNITS}/{unit}.service.d/zz-site.conf"
    rows = shlex.quote(f"[Service]\n{DYING[how]}\n")
    node.shell(f"mkdir -p $(dirname {file}); printf %s {rows} >{file}")
    before, node.before = node.before, node.state()
    result = node.apply(plan, terms=replace(node.terms, settle=1.5))
    assert result.outcome in (Outcome.FAILED, Outcome.ROLLBACK_FAILED), result
    assert unit in result.why or "the check says" in result.why, result
    runs = fix in ("dcgm", "limits")  # and cannot run again either
    assert (result.outcome is Outcome.ROLLBACK_FAILED) is runs, result
    if not runs:
        assert is_as_before(node)
    node.shell(f"rm {file}; rmdir $(dirname {file}) 2>/dev/null; systemctl daemon-reload")
    node.before = before


def test_the_dcgm_fix_uses_dcgm_service_if_older_packages_installed_it(node: Node) -> None:
    node.shell(
        "cd /usr/lib/systemd/system; systemctl disable -q --now nvidia-dcgm; "
        "mv nvidia-dcgm.service dcgm.service; systemctl daemon-reload; "
        "systemctl enable -q --now dcgm; touch /run/blind"
    )
    plan = node.plan("dcgm")
    assert plan.steps[0].actions[0].name == "dcgm.service"
    assert node.apply(plan).outcome is Outcome.CHANGED
    assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert "dcgm.service" in node.shell("systemctl --no-legend list-units dcgm.service")
    node.shell(
        "cd /usr/lib/systemd/system; systemctl disable -q --now dcgm; "
        "mv dcgm.service nvidia-dcgm.service; systemctl daemon-reload"
    )


# --- the clock -----------------------------------------------------------------------------------
# Before what reboots the node: in the first five minutes an unsynchronised clock is unknown, and so
# is a fabric.

TIMESYNCD = "systemctl mask -q chrony; systemctl unmask -q systemd-timesyncd"
CHRONY = """\
systemctl disable -q --now systemd-timesyncd chrony
systemctl unmask -q chrony; systemctl mask -q systemd-timesyncd
"""


@pytest.fixture
def timesyncd(node: Node) -> Iterator[Node]:
    """A node with timesyncd in place of chrony."""
    before = node.before
    node.shell(TIMESYNCD)
    node.before = node.state()
    yield node
    node.shell(CHRONY)
    node.before = before


@pytest.fixture
def server(node: Node) -> Node:
    """A node with an NTP server in reach."""
    node.shell(SERVER)
    return node


def test_chrony_synchronises_the_clock_and_is_stopped_again(server: Node) -> None:
    plan = server.plan("time_sync")
    assert server.apply(plan).outcome is Outcome.CHANGED
    assert server.shell(f"cut -d' ' -f1 {CLOCK}").strip() == "0"
    assert "Leap status     : Normal" in server.shell("chronyc tracking")
    assert server.rollback(plan).outcome is Outcome.ROLLED_BACK and is_as_before(server)


def test_timesyncd_also_synchronises_the_clock_and_is_stopped_again(
    timesyncd: Node, server: Node
) -> None:
    plan = timesyncd.plan("time_sync")
    assert plan.steps[0].resources[0].name == "systemd-timesyncd.service"
    result = timesyncd.apply(plan, terms=replace(timesyncd.terms, boot_settle=30))
    assert result.outcome is Outcome.CHANGED, result
    assert timesyncd.rollback(plan).outcome is Outcome.ROLLED_BACK and is_as_before(timesyncd)


def test_two_time_clients_are_a_conflict_that_a_person_must_resolve(timesyncd: Node) -> None:
    timesyncd.shell("systemctl unmask -q chrony")
    timesyncd.shell("systemctl enable -q --now chrony systemd-timesyncd")
    said = conflict(timesyncd.proposal("time_sync"))
    assert "chrony and systemd-timesyncd are installed: mask or remove all but one" in said
    running = timesyncd.shell("systemctl is-active chrony systemd-timesyncd").split()
    assert running == ["active", "active"], "systemd lets them fight"


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ("node", "chronyc waitsync 30 0 0 2: ended with 1"),
        ("timesyncd", "the check says: not synchronised"),
    ],
)
def test_a_time_client_without_a_server_is_stopped_again(
    request: pytest.FixtureRequest, client: str, told: str
) -> None:
    node: Node = request.getfixturevalue(client)
    result = node.apply(node.plan("time_sync"))
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert is_as_before(node)


LIFE = ("fabric", "dcgm", "gpudirect", "time_sync", "limits", "hugepages", "cpu_frequency",
        "cpu_governor", "transparent_hugepage")  # fmt: skip


def test_all_fixes_of_one_plan_survive_lost_power_and_roll_back_exactly(
    server: Node, fleet: SimulatedFleet
) -> None:
    """One plan for units, the clock, limits, memory and CPUs: applied, applied again, still so
    after lost power, and as before after the rollback and one more loss."""
    before, plan = server.before, server.plan(*LIFE)
    assert {step.fix for step in plan.steps} == set(LIFE)
    assert server.apply(plan).outcome is Outcome.CHANGED
    run = server.runs
    assert server.apply(plan).outcome is Outcome.UNCHANGED
    lose_power(server)
    server.shell(f"{SERVER}; until grep -q '^0 ' {CLOCK}; do sleep 0.1; done")
    made = server.proposal(*LIFE)
    assert not made.plan.steps and not made.plan.conflicts, made
    findings = fleet.vetted(*fleet.reach)["n1"]["findings"]
    verdicts = {each["verdict"] for each in findings if each["check"] in LIFE}
    assert verdicts <= {"ok", "not_applicable"}, findings
    assert server.rollback(plan, run=run).outcome is Outcome.ROLLED_BACK
    server.shell(WRONG)
    assert difference(server.state(), before) == set()
    lose_power(server)
    server.shell(WRONG)
    assert difference(server.state(), before) == set()


def lose_power(node: Node) -> None:
    node.cut_power()
    node.wait_until_up()


# --- real managers -------------------------------------------------------------------------------

PROFILE = """\
[main]
include=latency-performance
[cpu]
governor=performance
force_latency=99
no_turbo=0
[vm]
transparent_hugepages=never
[sysctl]
vm.nr_hugepages=512
"""
ADM, OWN = "tuned-adm profile", "nodevet-cpu-governor"
NO_TUNED = """\
systemctl disable --now -q tuned; systemctl stop dbus dbus.socket
rm -r /etc/tuned/site /etc/tuned/*profile*; rm -rf /etc/tuned/nodevet-*
"""
OF_TUNED = {  # fix -> line of the profile
    "transparent_hugepage": 8,
    "hugepages": 10,
}


@pytest.fixture
def tuned(node: Node) -> Iterator[Node]:
    """Without a manager as yet; `node` compares what is left."""
    node.shell("systemctl stop tuned; rm -rf /etc/tuned/site")
    yield node
    node.shell(NO_TUNED, check=False)


def test_nothing_that_tuned_sets_is_planned(tuned: Node) -> None:
    """By the real TuneD, which sets what it can; the advice is what a person types."""
    tuned.shell(START.format(shlex.quote(PROFILE)))
    for fix, line in OF_TUNED.items():
        said = conflict(tuned.proposal(fix))
        assert f"unit tuned.service (/etc/tuned/site/tuned.conf:{line})" in said, said
        assert "run `tuned-adm profile site`" in said and f"drop {fix} from" in said, said


@pytest.mark.parametrize("fix", ["cpu_frequency", "transparent_hugepage"])
def test_a_plan_is_stale_if_tuned_started_since_and_manages_the_setting(
    tuned: Node, fix: str
) -> None:
    plan = tuned.plan(fix)
    tuned.shell(START.format(shlex.quote(PROFILE.replace("no_turbo=0", "no_turbo=1"))))
    was = tuned.shell(f"cat {TURBO} {HIGHEST} {PAGES}")
    result = tuned.apply(plan)
    assert result.refusal is Refusal.STALE, result
    reasons = {"cpu_frequency": "does not start at boot", "transparent_hugepage": "never now"}
    assert reasons[fix] in result.why, result
    assert tuned.shell(f"cat {TURBO} {HIGHEST} {PAGES}") == was


GOVERNOR = f"{CPUS}/cpufreq/policy0/scaling_governor"
SLOW = """\
[main]
include=latency-performance
[cpu]
governor=powersave
force_latency=99
no_turbo=1
max_perf_pct=60
"""


def slow(tuned: Node) -> None:
    """A profile that slows CPUs down, and that TuneD sets at every boot."""
    tuned.shell(f"{START.format(shlex.quote(SLOW))}systemctl enable -q tuned")


def clocks(tuned: Node) -> tuple[str, ...]:
    """The active profiles, the governor, and what limits the frequencies."""
    files = f"{GOVERNOR} {HIGHEST} {LOWEST} {TURBO} {CPUS}/intel_pstate/max_perf_pct"
    return tuple(tuned.shell(f"cat /etc/tuned/active_profile {files}").splitlines())


def test_tuned_sets_governor_and_frequencies_by_profiles_of_nodevet(tuned: Node) -> None:
    """By the real TuneD, now and after the power was lost; each goes alone, in both orders."""
    slow(tuned)
    before = clocks(tuned)
    assert before[:2] == ("site", "powersave") and before[4:] == ("1", "60")
    both = tuned.plan("cpu_governor", "cpu_frequency")
    assert tuned.apply(both).outcome is Outcome.CHANGED
    run, fast = tuned.runs, clocks(tuned)
    assert fast[:2] == ("site nodevet-cpu-governor nodevet-cpu-frequency", "performance")
    assert int(fast[2]) > int(before[2]) and fast[3:] == ("1200000", "0", "100")
    tuned.cut_power()
    tuned.wait_until_up()
    tuned.shell(f"until grep -q 0 {TURBO} && grep -q 12 {LOWEST}; do sleep 0.1; done")
    assert clocks(tuned) == fast
    again = tuned.proposal("cpu_governor", "cpu_frequency").plan
    assert not again.steps and not again.conflicts
    governor, frequency = (replace(both, steps=(step,)) for step in both.steps)
    assert tuned.rollback(governor).outcome is Outcome.ROLLED_BACK
    assert clocks(tuned) == ("site nodevet-cpu-frequency", "powersave", *fast[2:])
    later = tuned.plan("cpu_governor")
    assert tuned.apply(later).outcome is Outcome.CHANGED
    assert clocks(tuned)[0] == "site nodevet-cpu-frequency nodevet-cpu-governor"
    assert tuned.rollback(frequency, run=run).outcome is Outcome.ROLLED_BACK
    assert clocks(tuned) == ("site nodevet-cpu-governor", "performance", *before[2:])
    assert tuned.rollback(later).outcome is Outcome.ROLLED_BACK
    assert clocks(tuned) == before and "nodevet" not in tuned.shell("ls /etc/tuned")


def test_a_profile_that_a_person_edited_or_switched_off_is_not_touched(tuned: Node) -> None:
    """And a session that is cut when TuneD is asked ends known."""
    slow(tuned)
    plan, active = tuned.plan("cpu_governor"), "cat /etc/tuned/active_profile"
    result = tuned.apply(plan, Executor(tuned.worker, at_act(2), tuned.proxy.cut))
    outcome, names = result.outcome, tuned.shell(active).split()
    assert (outcome, names[1:]) in ((Outcome.CHANGED, [OWN]), (Outcome.FAILED, [])), result
    assert outcome is Outcome.CHANGED or tuned.apply(plan).outcome is Outcome.CHANGED
    profile = f"/etc/tuned/{OWN}/tuned.conf"
    for change, reason in (
        (f"echo '# mine' >>{profile}", f"file {profile} is"),
        (f"sed -i '$d' {profile}; {ADM} balanced", f"tuned_profile {OWN} is"),
    ):
        tuned.shell(change)
        was = tuned.shell(f"{active} {profile}")
        result = tuned.rollback(plan)
        assert result.outcome is Outcome.REFUSED and reason in result.why, result
        assert tuned.shell(f"{active} {profile}") == was


def test_a_rollback_while_tuned_is_stopped_leaves_it_stopped_and_its_profiles_whole(
    tuned: Node,
) -> None:
    """TuneD sets nothing at all if one of its active profiles has no file."""
    slow(tuned)
    before, plan = clocks(tuned), tuned.plan("cpu_governor")
    assert tuned.apply(plan).outcome is Outcome.CHANGED
    active = "cat /etc/tuned/active_profile; ls /etc/tuned/*/tuned.conf; systemctl is-active tuned"
    was = tuned.shell(f"systemctl stop tuned; {active} || true")
    assert OWN in was and was.endswith("inactive\n")
    result = tuned.rollback(plan)
    assert result.outcome is Outcome.ROLLBACK_FAILED and "TuneD does not run" in result.why, result
    assert tuned.shell(f"{active} || true") == was
    tuned.shell("systemctl start tuned")
    assert tuned.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert clocks(tuned) == before and "nodevet" not in tuned.shell("ls /etc/tuned")


def test_tuned_gets_its_profile_back_if_the_new_one_does_not_set_the_value(tuned: Node) -> None:
    """A simulated node has no /dev/cpu_dma_latency, which TuneD would hold."""
    slow(tuned)
    result = tuned.apply(tuned.plan("cpu_idle_states"))
    assert result.outcome is Outcome.FAILED and "the check says: C6" in result.why, result
    said = tuned.shell("cat /etc/tuned/active_profile; ls /etc/tuned")
    assert said.split()[0] == "site" and "nodevet-cpu-idle-states" not in said


def test_a_tuned_profile_with_scripts_or_chosen_since_the_plan_is_not_replaced(tuned: Node) -> None:
    """So does a profile that a person chose after the plan."""
    slow(tuned)
    plan = tuned.plan("cpu_governor")
    tuned.shell(f"{ADM} balanced")
    result = tuned.apply(plan)
    assert result.outcome is Outcome.REFUSED, result
    tuned.shell(f"printf '[script]\\nscript=x.sh\\n' >>/etc/tuned/site/tuned.conf; {ADM} site")
    assert "runs scripts, which may set it" in conflict(tuned.proposal("cpu_governor"))


def test_a_fix_is_applied_if_tuned_sets_only_other_settings(tuned: Node) -> None:
    tuned.shell(START.format(shlex.quote("[main]\n[cpu]\ngovernor=powersave\n")))
    plan = tuned.plan("cpu_frequency")
    assert tuned.apply(plan).outcome is Outcome.CHANGED
    assert tuned.rollback(plan).outcome is Outcome.ROLLED_BACK


def test_the_advice_for_tuned_sets_the_value(tuned: Node) -> None:
    """A profile of the site that includes the active one."""
    profile = f"[main]\ninclude=latency-performance\n[sysfs]\n{TURBO}=0\n"
    tuned.shell(START.format(shlex.quote("[main]\ninclude=latency-performance\n")))
    tuned.shell(f"printf %s {shlex.quote(profile)} >/etc/tuned/site/tuned.conf")
    tuned.shell(f"tuned-adm --async profile site; until grep -q 0 {TURBO}; do sleep 0.1; done")


# --- processes that a job left -------------------------------------------------------------------

LOAD = (
    "{}setsid /usr/lib/nodevet-sim/nodevet-sim-load --gpus 0 --memory-mb 64 --command python "
    "--uid 1000 </dev/null >/dev/null 2>&1 & echo $!; sleep 0.5"
)
IN_JOB = """\
for top in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd /sys/fs/cgroup; do
    job=$top/system.slice/slurmstepd.scope/job_77/step_0
    mkdir -p $job 2>/dev/null && echo {0} >$job/cgroup.procs
done
grep job_77 /proc/{0}/cgroup
"""


TAKE = """\
until [ "$other" = {0} ]; do
    echo $(({0} - 1)) >/proc/sys/kernel/ns_last_pid
    setsid sleep 900 </dev/null >/dev/null 2>&1 &
    other=$!
    [ $other = {0} ] || kill $other
done
"""
"""Another process gets the number: the next one in the namespace of the node's processes."""


def lives(node: Node, pid: int) -> bool:
    return bool(node.shell(f"readlink /proc/{pid}/exe || true").strip())


@pytest.fixture
def left(node: Node) -> Iterator[tuple[Node, int]]:
    """A node, and a process on its GPU that ignores SIGTERM."""
    pid = int(node.shell(LOAD.format("trap '' TERM; ")))
    yield node, pid
    node.shell(f"kill -9 {pid} 2>/dev/null; true")


def test_a_process_that_ignores_sigterm_is_killed(left: tuple[Node, int]) -> None:
    node, pid = left
    plan = node.plan("leftover_processes")
    executor = Executor(node.worker)
    executor.seconds = 6.0
    result = node.apply(plan, executor)
    assert result.outcome is Outcome.CHANGED and not lives(node, pid), result


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_process_that_a_job_took_over_is_not_touched(left: tuple[Node, int], when: str) -> None:
    """In the control group of a running job: before the run, or right before it is ended."""
    node, pid = left
    plan = node.plan("leftover_processes")

    def join() -> None:
        node.shell(IN_JOB.format(pid))

    if when == "before":
        join()
    result = node.apply(plan, Executor(node.worker, at_act(1), join if when != "before" else int))
    assert lives(node, pid) and node.touched() == [], result
    told = "in job 77, and Slurm" if when == "before" else "control group of a job or a pod"
    assert told in result.why, result
    expected = Outcome.REFUSED if when == "before" else Outcome.FAILED
    assert result.outcome is expected, result


def test_another_process_with_the_same_pid_is_not_touched(
    left: tuple[Node, int], fleet: SimulatedFleet
) -> None:
    node, pid = left
    plan, place = node.plan("leftover_processes"), str(leader(fleet.name, "n1"))

    def take() -> None:
        node.shell(f"kill -9 {pid}; while [ -e /proc/{pid} ]; do sleep 0.01; done")
        subprocess.run(["nsenter", "-t", place, "-p", "sh", "-c", TAKE.format(pid)], check=True)

    result = node.apply(plan, Executor(node.worker, at_act(1), take))
    assert lives(node, pid), "the other one"
    # the simulated driver takes the other one for a user of the GPU
    assert "GPU 0: sleep" in result.why, result


@pytest.mark.parametrize("step", [0, 2])
def test_after_lost_power_at_any_action_a_run_is_reverted_or_resumed(node: Node, step: int) -> None:
    """Limits, huge pages and frequencies at once; the cut comes at the first action of one."""
    plan = node.plan(*KILLED)
    first = 1 + sum(len(each.actions) for each in plan.steps[:step])
    disk = node.disk()
    node.apply(plan, Executor(node.worker, at_act(first), node.cut_power))
    node.wait_until_up()
    again = node.apply(plan, resume=True)
    assert again.outcome in (Outcome.FAILED, Outcome.PARTIAL), again
    if node.touched():
        back = node.rollback(plan)
        assert back.outcome is Outcome.ROLLED_BACK, back
    assert is_as_before(node) and node.disk() == disk


# --- the controller ------------------------------------------------------------------------------

SEED = os.environ.get("NODEVET_KILLS_SEED") or secrets.token_hex(4)
KILLS = 2
RECORDS = range(3, 30)  # of the journal: from the first of the node to those of the last step


def test_a_run_killed_at_random_records_resumes_and_rolls_back_exactly(
    node: Node, fleet: SimulatedFleet
) -> None:
    """Limits, huge pages and frequencies: resumed, and rolled back to the disk as it was."""
    chance, disk, plan = random.Random(SEED), node.disk(), fleet.project / "plan.json"
    fixes = [word for fix in KILLED for word in ("--fix", fix)]
    care = ("--drain-hook", "true", "--settle", "0.2", "--boot-settle", "1")
    said = fleet.run_in_project("plan", *fleet.reach, *fixes, *care, "--author", "ann", "-o", plan)
    assert said.returncode == 1, said
    assert (
        fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes").returncode
        == 0
    )
    for number in chance.sample(RECORDS, KILLS):
        run = fleet.project / f"killed-{number}"
        kill_at(fleet, plan, run, number)
        resumed = until_free(fleet, "apply", "--resume", run, "-b", "base", "--deadline", "150")
        assert resumed.returncode in (0, 1), (SEED, number, resumed)
        back = until_free(fleet, "rollback", run, "--settle", "0.2", "--deadline", "150")
        assert back.returncode == 0, (SEED, number, back)
        assert difference(node.state(), node.before) == set(), (SEED, number)
        assert node.disk() == disk, (SEED, number)


def kill_at(fleet: SimulatedFleet, plan: Path, run: Path, number: int) -> None:
    """Apply a plan, and kill the controller once its journal has `number` records."""
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    with (fleet.project / "killed.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nodevet", *map(str, words)],
            cwd=fleet.project,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(fleet.project), "NODEVET_STORE": "none"},
        )
    journal = run / "journal.jsonl"
    while process.poll() is None and records(journal) < number:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert records(journal) >= number, (fleet.project / "killed.log").read_text()


def records(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def until_free(fleet: SimulatedFleet, *words: object) -> "subprocess.CompletedProcess[str]":
    """A command, once the session of the killed controller no longer locks the node."""
    for _ in range(10):
        done = fleet.run_in_project(*words)
        if "locked by" not in done.stdout:
            break
    return done
