"""Each cause is told for a node of which it is known, and none where nothing waits."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.connections import SLOW_STEP
from nodevet.diagnose.model import Cause, Confidence, Diagnosis, GpuDiagnosis, HostDiagnosis
from nodevet.diagnose.rules import (
    BUSY,
    LOST_STEP,
    NEXT,
    POLLS_STEP,
    RULES,
    SLOWED,
    SMALL_READS,
)
from nodevet.diagnose.steps import ASK_IN_TOP
from nodevet.diagnose.words import figure_text
from nodevet.model import Status
from tests.diagnosis.samples import (
    BLOCKED,
    CASES,
    DOWNLOADS,
    HOT,
    JSON,
    LOCKED,
    LOOKS,
    OTHERS,
    TCP,
    WORKERS,
    cgroup,
    evidence,
    generations,
    gpu,
    process,
    sections,
    series,
    thread,
    without,
)

BOUND = (
    Cause.SUBMISSION,
    Cause.PREPROCESSING,
    Cause.STORAGE,
    Cause.TRANSFER,
    Cause.MEMORY,
    Cause.NUMA,
    Cause.MIXED,
)
NONE = "not enough evidence"


def told(found: dict[str, dict[str, object]]) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str), answer
    return answer[0]


@pytest.mark.parametrize("cause", CASES)
def test_each_cause_is_reported_for_its_node(cause: str) -> None:
    found = told(CASES[cause])
    assert found.cause.value == cause, found.sentence
    assert found.confidence is (Confidence.LOW if cause == NONE else found.confidence)
    assert found.sentence and "None" not in found.sentence
    own = {rule.next_step for rule in RULES if rule.cause is found.cause}
    listed = {NEXT[found.cause], LOST_STEP, SLOW_STEP, SLOWED["thermal slowdown"], *own}
    assert found.next_step in listed or found.next_step.startswith((POLLS_STEP, ASK_IN_TOP))


def test_several_causes_are_reported_as_a_mixture_with_a_step_for_each() -> None:
    busy = sections(
        [gpu(20, pcie_rx_kb_s=[60000000] * LOOKS)],
        [process(threads=[*BLOCKED]), *WORKERS],
    )
    found = told(busy)
    assert found.cause is Cause.MIXED
    assert set(found.causes) == {Cause.PREPROCESSING, Cause.STORAGE, Cause.TRANSFER}
    assert all(f"{cause.value}: {NEXT[cause]}" in found.next_step for cause in found.causes)


BACKUP = {"pid": 4711, "command": "backup", "cpus": 7.5, "uid": 1000, "cgroup": "/b.service"}


def starving(others: Sequence[object] | None = (BACKUP,), **rest: Any) -> GpuDiagnosis:
    starved = thread(10, 20, waited_ns=[0, 7_500_000_000])
    node = sections(processes=[process(threads=[starved])], groups=[cgroup(**rest)])
    if others is not None:
        node["process_activity"]["others"] = list(others)
    return told(node)


def test_g5_a_thread_that_waits_for_a_cpu_is_not_hot() -> None:
    found = starving()
    assert (found.causes, found.confidence) == ((Cause.STARVED,), Confidence.HIGH), found.sentence
    assert "waited for a CPU that others used 75 % of the time" in found.sentence
    assert "others use 7.5 CPUs (backup 4711 of user 1000 in b.service)" in found.sentence
    owners = (
        "ask the owner of these processes about them, and leave them running: backup 4711 of user"
    )
    assert found.next_step.startswith(owners)
    assert "CPUs of its own" in found.next_step


@pytest.mark.parametrize(("cpus", "widens"), [("0-1", True), ("0-3", False)])
def test_g5_a_job_that_is_bound_to_few_cpus_needs_more(cpus: str, widens: bool) -> None:
    starved = thread(10, 20, waited_ns=[0, 7_500_000_000])
    found = told(sections(processes=[process(threads=[starved], cpus_allowed=cpus)]))
    assert found.causes == (Cause.STARVED,)
    assert ("bind it to more CPUs than 2" in found.next_step) is widens


@pytest.mark.parametrize(
    ("others", "why", "sure"),
    [([], "nodevet saw no process", Confidence.LOW), (None, "could not read", Confidence.MEDIUM)],
)
def test_g5_other_processes_that_were_not_read_lower_confidence(
    others: list[object] | None, why: str, sure: Confidence
) -> None:
    found = starving(others=others)
    assert (found.causes, found.confidence) == ((Cause.STARVED,), sure), found.sentence
    assert why in found.sentence


def test_g5_waiting_due_to_a_cpu_quota_is_not_blamed_on_other_processes() -> None:
    """schedstat counts the time for which a quota holds a thread as a wait for a CPU."""
    held = {"cpu_quota": 0.2, "periods": [0, 100], "throttled": [0, 95]}
    found = starving(**held, throttled_us=[0, 7_300_000])
    assert found.causes == (Cause.QUOTA,), found.sentence
    assert value_of(found, "cpu_starved") == 2.0


@pytest.mark.parametrize(
    ("throttled", "cause", "confidence"),
    [
        (3, Cause.PREPROCESSING, Confidence.MEDIUM),
        (12, Cause.PREPROCESSING, Confidence.LOW),
        (60, Cause.QUOTA, Confidence.HIGH),
    ],
)
def test_g5_a_cpu_quota_is_the_cause_only_if_it_throttles_often(
    throttled: int, cause: Cause, confidence: Confidence
) -> None:
    group = cgroup(cpu_quota=1.0, periods=[0, 100], throttled=[0, throttled])
    hot = process(threads=[thread(10, 96)])
    found = told(sections(processes=[hot], groups=[group]))
    assert (found.causes, found.confidence) == ((cause,), confidence), found.sentence


def value_of(found: GpuDiagnosis, name: str) -> float | None:
    return {figure.name: figure.value for figure in found.figures}[name]


UNREAD = {"throttled": None, "throttled_us": None, "errors": {"throttled": "EACCES"}}


@pytest.mark.parametrize("periods", [None, (0, 100)])
def test_g5_unread_throttling_counters_are_unknown_and_not_zero(
    periods: tuple[int, int] | None,
) -> None:
    found = starving(cpu_quota=0.2, periods=periods, **UNREAD)
    assert (value_of(found, "cpu_starved"), value_of(found, "quota_throttled")) == (None, None)
    assert found.confidence is Confidence.LOW


def test_limits_of_a_cgroup_that_was_not_read_are_unknown() -> None:
    both = [process(), process(20, parent=10, cgroup="/other")]
    unread = {
        **UNREAD,
        "periods": None,
        "cpu_quota": 1.0,
        "memory_limit_b": 1,
        "memory_events_max": None,
    }
    groups = [cgroup(), cgroup(path="/other", **unread)]
    found = told(sections(processes=both, groups=groups))
    assert (value_of(found, "quota_throttled"), value_of(found, "limit_hits")) == (None, None)
    groups = [cgroup(), cgroup(path="/other", errors={"cpu_quota": "EACCES"})]
    assert value_of(told(sections(processes=both, groups=groups)), "cpus_allowed") is None


def test_g5_threads_of_the_job_itself_do_not_count_as_other_processes() -> None:
    crowd = [thread(11 + n, 25, waited_ns=[0, 7_000_000_000]) for n in range(8)]
    node = sections(processes=[process(threads=[thread(10), *crowd], cpus_allowed="0-1")])
    assert told(node).causes == (Cause.PREPROCESSING,)
    node = sections(processes=[process(threads=[thread(10), *crowd], cpus_allowed="0-2")])
    found = told(node)
    assert (found.cause, found.confidence) == (Cause.STARVED, Confidence.MEDIUM), found.sentence
    assert "its own threads may be in one another's way" in found.sentence


def test_a_hot_helper_is_preprocessing_and_not_submission_bound() -> None:
    found = told(OTHERS["one hot helper"])
    assert found.causes == (Cause.PREPROCESSING,)
    assert "helpers takes 95 % of a core (python 20, thread 20)" in found.sentence
    ended = told(OTHERS["helpers that end"])
    assert ended.causes == (Cause.PREPROCESSING,)
    assert "helpers that ended took 90 % of a core" in ended.sentence


def test_the_cpu_share_of_a_helper_excludes_its_waits_and_ended_processes() -> None:
    """Neither the time in which it waited for a CPU, nor that of others that ended."""
    starved = process(20, [thread(20, 30, waited_ns=[0, 6_500_000_000])], parent=10)
    found = told(sections(processes=[process(), starved]))
    assert found.causes == (Cause.STARVED,)
    assert "helpers takes 30 % of a core (python 20, thread 20)" in "".join(found.also)
    after_one_another = told(sections(processes=generations()))
    assert "helpers takes 45 % of a core" in after_one_another.sentence
    assert "helpers that ended took 360 % of a core" in after_one_another.sentence


def test_helpers_that_wait_for_one_another_while_others_have_the_cpus() -> None:
    """None of them is hot: the one waits for the other, and that for a CPU."""
    two = [
        process(20, [thread(20, 35, waited_ns=[0, 3_500_000_000])], parent=10),
        process(21, [thread(21, 10, waited_ns=[0, 3_000_000_000])], parent=10),
    ]
    found = told(sections(processes=[process(), *two]))
    assert set(found.causes) == {Cause.STARVED, Cause.PREPROCESSING}, found.sentence
    assert "waited for a CPU that others used 35 % of the time" in found.sentence


@pytest.mark.parametrize(
    ("ran", "causes", "confidence"),
    [
        (70, {Cause.PREPROCESSING}, Confidence.MEDIUM),
        (52, {Cause.PREPROCESSING, Cause.STARVED}, Confidence.LOW),
        (38, {Cause.STARVED}, Confidence.MEDIUM),
    ],
)
def test_a_thread_is_cpu_starved_only_if_it_waits_for_a_cpu_longer_than_it_runs(
    ran: int, causes: set[Cause], confidence: Confidence
) -> None:
    """Two figures that are close change places from one watch to the next."""
    computes = thread(10, ran, waited_ns=[0, (98 - ran) * 10**8])
    found = told(sections(processes=[process(threads=[computes])]))
    assert (set(found.causes), found.confidence) == (causes, confidence), found.sentence
    said = " ".join([found.sentence, *found.also])
    assert f"waited for a CPU that others used {98 - ran} % of the time" in said
    alone = [process(20 + n, [thread(20 + n, 45)], parent=10) for n in range(2)]
    assert told(sections(processes=[process(), *alone])).cause is Cause.UNCLEAR


@pytest.mark.parametrize("waited_for", [True, False])
def test_processes_that_ended_count_with_their_cpu_time_during_the_watch(waited_for: bool) -> None:
    found = told(sections(processes=generations(waited_for)))
    known = {figure.name: figure.value for figure in found.figures}
    assert known["job_cpus"] == 7.2
    assert known["hot_threads"] == 8.0, "eight at a time"
    assert found.causes == (Cause.PREPROCESSING,)
    assert "8 of the job's processes ended during the watch" in found.also
    assert "8 of the job's processes began during the watch" in found.also


def test_a_process_that_ended_long_after_its_last_sample_does_not_count_as_idle() -> None:
    gone = process(threads=[LOCKED], gpus=[0], seen_s=0.0, ended_s=9.0)
    found = told(sections([gpu(0)], [gone]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)
    seen = told(sections([gpu(0)], [{**gone, "seen_s": 8.8}]))
    assert {figure.name: figure.value for figure in seen.figures}["job_cpus"] == 0


def test_a_thread_is_blocked_only_for_the_samples_in_which_it_waits_for_storage() -> None:
    moment = thread(10, 5, states="-" * 7 + "DDDD", waits={"folio_wait_bit_common": 4})
    found = told(sections(processes=[process(threads=[moment])]))
    blocked = {figure.name: figure.value for figure in found.figures}["blocked"]
    assert blocked is not None and 36 < blocked < 37


@pytest.mark.parametrize(
    ("waited_s", "causes"), [(8.2, {Cause.STARVED}), (5.0, {Cause.STARVED, Cause.STORAGE})]
)
def test_a_thread_cannot_wait_for_storage_while_it_runs_or_waits_for_a_cpu(
    waited_s: float, causes: set[Cause]
) -> None:
    """Its looks may meet it in D more often: the kernel counts when it was not asleep."""
    waits = {"states": "RRRRRDRDDRD", "waits": {"folio_wait_bit": 4}}
    starved = thread(10, 6, 4, waited_ns=[0, int(waited_s * 1e9)], **waits)
    found = told(sections(processes=[process(threads=[starved])]))
    assert set(found.causes) == causes, found.sentence
    assert value_of(found, "blocked") == pytest.approx(min(400 / 11, 94 - 10 * waited_s))


@pytest.mark.parametrize(
    ("waited_s", "causes", "confidence"),
    [
        (2.2, {Cause.STORAGE}, Confidence.MEDIUM),
        (3.5, {Cause.STORAGE, Cause.STARVED}, Confidence.LOW),
        (4.5, {Cause.STORAGE, Cause.STARVED}, Confidence.MEDIUM),
    ],
)
def test_a_wait_for_a_cpu_is_a_second_cause_only_if_it_is_about_as_long_as_that_for_storage(
    waited_s: float, causes: set[Cause], confidence: Confidence
) -> None:
    """The shorter wait changes most from one watch to the next."""
    waits = {"states": "DDDDDDDRRRR", "waits": {"folio_wait_bit_common": 7}}
    both = thread(10, 2, 1, waited_ns=[0, int(waited_s * 1e9)], **waits)
    found = told(sections(processes=[process(threads=[both])]))
    assert (set(found.causes), found.confidence) == (causes, confidence), found.sentence
    said = " ".join([found.sentence, *found.also])
    assert f"waited for a CPU that others used {waited_s * 10:g} % of the time" in said
    assert "comes with" not in said


def test_a_wait_for_a_cpu_is_a_cause_however_long_another_thread_waits_for_storage() -> None:
    """A thread that writes logs may wait all the time, and hold nothing up."""
    starved = thread(10, 20, 5, waited_ns=[0, 4 * 10**9])
    writes = thread(11, 1, states="D" * LOOKS, waits={"folio_wait_bit_common": LOOKS})
    found = told(sections(processes=[process(threads=[starved, writes])]))
    assert set(found.causes) == {Cause.STORAGE, Cause.STARVED}, found.sentence


def test_a_process_with_many_round_trips_to_others_is_submission_bound() -> None:
    found = told(OTHERS["thousands of round trips"])
    assert found.causes == (Cause.SUBMISSION,)
    assert "switches context 30000 times a second" in found.sentence


def test_a_power_limit_below_the_boards_default_throttles_and_the_default_does_not() -> None:
    """A board that is sold with a low limit, as L4, runs at half its clock by design."""
    lowered = told(OTHERS["at a power limit that was lowered"])
    assert lowered.causes == (Cause.THROTTLED,)
    assert "its power limit is 71 % of the board's default (500 W of 700 W)" in lowered.sentence
    assert told(OTHERS["at its power limit"]).causes == (Cause.GPU,)


HOT_GPU = gpu(97, event_reasons=[0x40] * LOOKS, clock_sm_mhz=[900] * LOOKS)


@pytest.mark.parametrize(
    ("counter", "said"),
    [
        ([390e9, 400e9], "(hardware thermal slowdown; at least 6 min 40 s of the 16 min 50 s"),
        ([390e9, 400e9], "since boot: 40 %)"),
        ([0, 10e9], "at least 10 s of the 16 min 50 s since boot: 1 %)"),
        ([5000e9, 5010e9], "(hardware thermal slowdown),"),
        (None, "(hardware thermal slowdown),"),
    ],
)
def test_the_time_slowed_since_boot_is_reported_if_the_driver_counts_it(
    counter: list[float] | None, said: str
) -> None:
    """The node booted 1000 s before it was watched: no counter can have more than that."""
    pair = counter and list(map(int, counter))
    found = told(sections([{**HOT_GPU, "hw_thermal_ns": pair}]))
    assert said in found.sentence


def test_clocks_set_far_below_the_maximum_are_throttling_and_the_setting_is_named() -> None:
    low = gpu(90, clock_sm_mhz=[900] * LOOKS)
    found = told(OTHERS["clocks that are set low"])
    assert (found.causes, found.confidence) == ((Cause.THROTTLED,), Confidence.HIGH)
    assert (
        "its SM clock is 45 % of its maximum" in found.sentence
        and "nvidia-smi -rgc" in found.next_step
    )
    assert not any("GPU-bound" in line for line in found.also)
    by_application = told(sections([low], application=900))
    assert "of its maximum (application clock 900 MHz)" in by_application.sentence
    by_driver = told(sections([{**low, "event_reasons": [0x2] * LOOKS}]))
    assert "names application clocks" in by_driver.sentence


def test_low_clocks_of_a_seldom_busy_or_power_capped_gpu_are_not_throttling() -> None:
    assert told(sections([gpu(30, clock_sm_mhz=[345] * LOOKS)])).cause is Cause.UNCLEAR
    capped = told(OTHERS["at its power limit"])
    assert capped.cause is Cause.GPU and "MHz" not in capped.sentence


def test_a_process_whose_threads_were_omitted_leaves_its_job_unclear() -> None:
    left_out = process(20, parent=10, threads_total=700, errors={"threads": "too many threads"})
    del left_out["threads"]
    found = told(sections(processes=[process(threads=HOT), left_out]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)
    assert "too many threads" in found.sentence


WAITS_BY_KERNEL = {  # as wchan has them, from Linux 3.10 to 6.18
    "sleep_on_page_killable": True,
    "wait_on_page_bit_killable": True,
    "folio_wait_bit_common": True,
    "rpc_wait_bit_killable": True,
    "request_wait_answer": True,
    "cl_sync_io_wait": True,
    "cxiWaitEventWait": True,
    "read_events": True,
    "blk_mq_get_tag": True,
    "futex_wait_queue_me": False,
    "anon_pipe_read": False,
    "poll_schedule_timeout.constprop.0": False,
    "io_cqring_wait": False,  # of files or of sockets
}


@pytest.mark.parametrize("wchan", WAITS_BY_KERNEL)
def test_what_a_sleeping_thread_waits_for_is_known_by_the_kernels_function(wchan: str) -> None:
    asleep = thread(10, 5, waits={wchan: LOOKS})
    cause = told(sections(processes=[process(threads=[asleep])])).cause
    assert (cause is Cause.STORAGE) is WAITS_BY_KERNEL[wchan]


def test_a_quota_that_is_used_up_is_reported_with_its_cpus() -> None:
    group = cgroup(cpu_quota=2.0, periods=[0, 100], throttled=[0, 90])
    found = told(sections(processes=[process(threads=[thread(10, 40)])], groups=[group]))
    assert found.cause is Cause.QUOTA
    assert "the job may use 2 CPUs (cgroup CPU quota)" in found.sentence


def test_a_stage_that_limits_nothing_is_not_reported() -> None:
    """Every CPU of the machine is no limit, and no NFS is no fast NFS."""
    node = sections(processes=[process(cpus_allowed="0-31")])
    assert not any("may use" in line for line in told(node).also)
    del node["cpu"]
    found = told(node)
    assert not any("may use" in line for line in found.also)
    nfs = {each.name: each.value for each in found.figures if each.name.startswith("nfs_")}
    assert nfs == {"nfs_latency": None, "nfs_retransmitted": None}


def test_a_paging_job_does_not_wait_for_storage_too() -> None:
    assert told(CASES["memory-pressure"]).causes == (Cause.MEMORY,)


@pytest.mark.parametrize(
    ("system", "faults", "causes"),
    [
        (70, 20_000, {Cause.MEMORY}),
        (70, 600, {Cause.MEMORY, Cause.SUBMISSION}),  # 12 ms of system time each: not of faults
        (10, 20_000, {Cause.MEMORY, Cause.SUBMISSION}),
    ],
)
def test_a_thread_that_is_hot_because_it_pages_does_not_submit_too_slowly(
    system: int, faults: int, causes: set[Cause]
) -> None:
    """As from swap in memory, for which it hardly sleeps."""
    hot = process(threads=[thread(10, 97, system)], major_faults=[0, faults])
    found = told(sections(processes=[hot], swapped=2000))
    assert set(found.causes) == causes, found.sentence
    explained = any(
        "submission-bound too, which comes with memory-pressure" in line for line in found.also
    )
    assert explained is (len(causes) == 1)


@pytest.mark.parametrize(
    ("percent", "rx_kb_s", "causes"),
    [
        (40, 6_000_000, {Cause.STARVED}),
        (40, 55_000_000, {Cause.STARVED, Cause.TRANSFER}),  # whoever copies, the link is full
        (82, 6_000_000, {Cause.TRANSFER}),  # it is hot without its waits
    ],
)
def test_waits_for_a_cpu_do_not_count_as_copy_time_of_a_thread(
    percent: int, rx_kb_s: int, causes: set[Cause]
) -> None:
    copies = thread(10, percent, waited_ns=[0, int((99 - percent) * 1e8)])
    job = process(threads=[copies])
    found = told(sections([gpu(pcie_rx_kb_s=[rx_kb_s] * LOOKS)], [job]))
    assert set(found.causes) == causes, found.sentence
    is_effect = any("transfer-bound too, which comes with" in line for line in found.also)
    assert is_effect is (causes == {Cause.STARVED})


@pytest.mark.parametrize(
    ("stalled_us", "said"), [(7, "< 0.1 %"), (0, "0 %"), (200_000, "2 %"), (30_000, "0.3 %")]
)
def test_a_tiny_share_is_reported_as_tiny(stalled_us: int, said: str) -> None:
    group = cgroup(memory_full_us=[0, stalled_us])
    found = told(sections(groups=[group]))
    stalled = next(each for each in found.figures if each.name == "job_memory_stalled")
    assert figure_text(stalled).endswith(f"(PSI) {said}")


def test_an_unseen_job_is_not_reported_as_idle() -> None:
    """NVML names it, and /proc does not show it: hidepid, or another namespace."""
    for busy in (0, 20):
        found = told(sections([gpu(busy)], []))
        assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)
        assert "nodevet did not watch process 10" in found.sentence, found.sentence


def test_a_gpu_in_mig_mode_without_utilization_is_not_idle() -> None:
    """The driver tells no utilization of it."""
    mig = gpu(0, errors={"samples": "NVML_ERROR_NOT_SUPPORTED"})
    for field in ("samples", "utilization_percent", "memory_utilization_percent"):
        del mig[field]
    found = told(sections([mig], [process(threads=[thread(10)])]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)


def test_a_thread_whose_sleep_is_not_shown_may_wait_for_storage() -> None:
    """As that of another user's process."""
    asleep = thread(10, 95, errors={"waits": "the kernel does not show this user where it sleeps"})
    del asleep["waits"]
    found = told(sections(processes=[process(threads=[asleep])]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)
    assert "where it sleeps" in found.sentence


def test_processes_that_were_omitted_leave_a_job_unclear() -> None:
    node = sections([gpu(0)], [process(threads=[LOCKED])])
    assert told(node).cause is Cause.STUCK
    node["process_activity"]["left_out"] = 1
    assert told(node).cause is Cause.UNCLEAR
    busy = sections([gpu(97)], [process(threads=[thread(10)])])
    busy["process_activity"]["left_out"] = 1
    assert told(busy).cause is Cause.GPU


def test_a_processs_helpers_are_part_of_its_job() -> None:
    found = told(CASES["preprocessing-bound"])
    assert found.jobs[0].helpers == len(WORKERS)


def test_a_process_of_another_gpu_says_nothing_of_this_one() -> None:
    other = process(30, HOT, gpus=[1])
    assert told(sections(processes=[process(), other])).cause is Cause.UNCLEAR


def test_cpus_far_from_a_busy_gpu_are_not_a_cause() -> None:
    """What ran far from its GPU may still keep it busy."""
    found = told(sections([gpu(97)], [process(threads=[thread(10, 40, cpu=20)])]))
    assert found.cause is Cause.GPU


@pytest.mark.parametrize("node", [*CASES, *OTHERS])
def test_a_diagnosis_without_a_series_of_samples_is_the_same_or_less_certain(node: str) -> None:
    """Never another cause with the same confidence."""
    order = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)
    watched = {**CASES, **OTHERS}[node]
    before = told(watched)
    for path in series(watched):
        answer = diagnose(evidence(without(watched, path)))
        if isinstance(answer, str):
            continue
        after = answer[0]
        if after.cause is not before.cause and after.cause is not Cause.UNCLEAR:
            less = order.index(after.confidence) < order.index(before.confidence)
            assert less, f"without {'.'.join(path)}: {after.cause}: {after.sentence}"


@given(
    busy=st.integers(int(BUSY) + 1, 100),
    threads=st.lists(
        st.builds(
            thread,
            st.integers(11, 99),
            st.integers(0, 100),
            state=st.sampled_from("RSD"),
            cpu=st.integers(0, 31),
        ),
        max_size=6,
        unique_by=lambda each: each["tid"],
    ),
    link=st.integers(0, 70_000_000),
    swapped=st.integers(0, 10_000),
)
@settings(max_examples=100, deadline=None)
def test_a_job_that_does_not_wait_is_never_called_bound(
    busy: int, threads: list[dict[str, object]], link: int, swapped: int
) -> None:
    node = sections(
        [gpu(busy, pcie_rx_kb_s=[link] * LOOKS)],
        [process(threads=[thread(10), *threads], major_faults=[0, swapped])],
        swapped=swapped,
    )
    assert told(node).cause not in BOUND


def test_every_threshold_names_its_source_and_an_existing_figure() -> None:
    figures = {figure.name for figure in told(CASES["GPU-bound"]).figures}
    for rule in RULES:
        for threshold in rule.thresholds:
            assert threshold.figure in figures, f"{rule.name}: {threshold.figure}"
            assert len(threshold.source) > 10


def test_a_gpu_that_was_not_watched_is_not_diagnosed() -> None:
    answer = diagnose(evidence({"cpu": {"online": "0-3"}}))
    assert answer == "the probe did not read this section"


HELD = gpu(0)
TURNS = [thread(10), *(thread(11 + n, 24, 1, switches=[0, 4000]) for n in range(4))]
DOUBTED = {
    "GPU-bound at a quarter of its power": (
        sections([gpu(97, power_mw=[175000] * LOOKS)]),
        Cause.GPU,
        "; but it draws 25 % of its power limit, like a GPU whose kernels only poll",
    ),
    "submission-bound that reads": (
        sections(processes=[process(threads=HOT, read_b=[0, 2 * 10**9])]),
        Cause.SUBMISSION,
        "; but it reads 200 MB/s, which takes system time as well",
    ),
    "hot in user time": (
        sections(processes=[process(threads=[thread(10, 98)])]),
        Cause.PREPROCESSING,
        "; but a program that calls many small kernels is also hot in user time",
    ),
    "hot in user time while it copies": (
        sections([gpu(16, pcie_rx_kb_s=[6_000_000] * LOOKS)], [process(threads=[thread(10, 98)])]),
        Cause.TRANSFER,
        "; but transforms in the thread that copies look the same",
    ),
    "threads in turns": (
        sections(processes=[process(threads=TURNS)]),
        Cause.PREPROCESSING,
        "; but threads that wait for one another's locks take turns as well",
    ),
    "NUMA-remote with its memory near": (
        sections(processes=[process(threads=[thread(10, 40, 20, cpu=20)])]),
        Cause.NUMA,
        "; but only 0 % of the job's memory is far from the GPU",
    ),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_e30_a_contradicted_cause_has_medium_confidence_and_the_reason(name: str) -> None:
    watched, cause, but = DOUBTED[name]
    found = told(watched)
    assert found.causes == (cause,), found.sentence
    assert found.confidence is Confidence.MEDIUM
    assert found.sentence.endswith(but)


ELSEWHERE = (
    *("poll_schedule_timeout.constprop.0", "do_select", "io_cqring_wait", "n_tty_read"),
    *("__skb_wait_for_more_packets", "hrtimer_nanosleep", "do_sigtimedwait", "sk_wait_data"),
    *("pipe_read", "tcp_recvmsg_locked", "unix_stream_data_wait", "do_epoll_wait", "wait_woken"),
)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_g3_a_job_that_sleeps_on_no_lock_is_not_stuck(place: str) -> None:
    asleep = thread(10, switches=[0, 0], waits={place: LOOKS})
    found = told(sections([HELD], [process(threads=[asleep])]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW), found.sentence


def asleep(call: str, moved: int = 0, **rest: Any) -> dict[str, Any]:
    """A thread that slept in this call at all looks."""
    sleep = {"call": call, "looks": LOOKS, **rest}
    return thread(10, switches=[0, moved], waits={"wait_woken": LOOKS}, sleeps=[sleep])


SLEEPS = {
    "a server": (asleep("epoll_wait", listens=True, connections=0), Cause.REQUESTS, "high"),
    "a client's connection": (
        asleep("recvfrom", listens=True, connections=1, peer="10.0.0.9:40000"),
        Cause.REQUESTS,
        "high",
    ),
    "a download": (
        asleep("recvfrom", 500, listens=False, connections=1, peer="10.0.0.5:443", tcp=TCP),
        Cause.NETWORK,
        "high",
    ),
    "a silent peer": (
        asleep("recvfrom", listens=False, connections=1, peer="10.0.0.5:443"),
        Cause.NETWORK,
        "medium",
    ),
    "a download in poll": (
        asleep("poll", 500, listens=False, connections=1, peer="10.0.0.5:443"),
        Cause.NETWORK,
        "medium",
    ),
    "anything in poll": (asleep("poll", listens=True, connections=1), Cause.UNCLEAR, "low"),
    "a unix socket": (asleep("recvmsg", listens=False, connections=0), Cause.UNCLEAR, "low"),
    "a pipe": (asleep("read"), Cause.UNCLEAR, "low"),
    "the driver": (asleep("ioctl", path="/dev/nvidia-uvm"), Cause.STUCK, "medium"),
    "a lock": (asleep("futex"), Cause.STUCK, "medium"),
    "a lock with a timeout": (asleep("futex", 5), Cause.UNCLEAR, "low"),
}


@pytest.mark.parametrize("name", SLEEPS)
def test_g3_the_call_and_its_connection_decide_what_a_sleeping_job_waits_for(name: str) -> None:
    slept, cause, confidence = SLEEPS[name]
    found = told(sections([HELD], [process(threads=[slept])]))
    assert (found.cause, found.confidence.value) == (cause, confidence), found.sentence


def test_g3_a_job_that_sleeps_for_a_longer_watch_is_stuck_with_high_confidence() -> None:
    node = sections([HELD], [process(threads=[asleep("futex")])])
    assert "nodevet watched it for only 10 s" in told(node).sentence
    node["process_activity"]["look"] = {"began_s": 1.7e9, "seconds": 60.0, "cost_s": 0.02}
    assert told(node).confidence is Confidence.HIGH


def test_g3_polling_library_threads_do_not_make_a_stuck_job_look_like_a_server() -> None:
    library = {**asleep("poll", listens=True), "tid": 11, "name": "cuda-EvtHandlr"}
    found = told(sections([HELD], [process(threads=[asleep("futex"), library])]))
    assert found.causes == (Cause.STUCK,), found.sentence


def test_g3_a_thread_that_polls_for_a_silent_gpu_is_stuck_with_low_confidence() -> None:
    hot = thread(10, 99, state="R", switches=[0, 2])
    quiet = process(threads=[hot], read_b=[0, 0])
    found = told(sections([HELD], [quiet]))
    assert (found.causes, found.confidence) == ((Cause.STUCK,), Confidence.LOW), found.sentence
    assert "computes without the GPU" in found.sentence and "where it spins" in found.next_step
    reads = process(threads=[hot])
    assert told(sections([HELD], [reads])).cause is not Cause.STUCK


def test_a_thread_that_polls_without_a_cpu_is_stuck_or_starved_with_low_confidence() -> None:
    """A thread that computes before its first step looks the same, and others hold it up."""
    ready = thread(10, 40, state="R", switches=[0, 2], waited_ns=[0, 5_900_000_000])
    found = told(sections([HELD], [process(threads=[ready], read_b=[0, 0])]))
    assert set(found.causes) == {Cause.STUCK, Cause.STARVED}, found.sentence
    assert found.confidence is Confidence.LOW


def in_d(place: str, call: str = "", stack: tuple[str, ...] = (), **rest: Any) -> GpuDiagnosis:
    sleeps = [{"call": call, "looks": LOOKS, **rest}] if call else []
    slept = thread(10, state="D", switches=[5, 5], waits={place: LOOKS}, sleeps=sleeps)
    return told(sections([HELD], [process(threads=[slept], stack=list(stack))]))


UNKNOWN_LOCK = "rwsem_down_read_slowpath"
IN_D = {
    "a page of a file": (in_d("folio_wait_bit_common"), Cause.STORAGE),
    "NFS": (in_d("rpc_wait_bit_killable"), Cause.STORAGE),
    "a read of a file system that is not known": (
        in_d("wait_for_something", "pread64", path="/data/a", filesystem="weka"),
        Cause.STORAGE,
    ),
    "a child that does not start": (in_d("kernel_clone", "vfork"), Cause.UNCLEAR),
    "a lock of the driver, by its file": (
        in_d(UNKNOWN_LOCK, "ioctl", path="/dev/nvidia-uvm"),
        Cause.STUCK,
    ),
    "a lock of the driver, by its stack": (
        in_d(UNKNOWN_LOCK, stack=(UNKNOWN_LOCK, "uvm_ioctl")),
        Cause.STUCK,
    ),
    "a lock of anything": (in_d(UNKNOWN_LOCK), Cause.UNCLEAR),
}


@pytest.mark.parametrize("name", IN_D)
def test_g9_the_state_d_alone_is_not_storage(name: str) -> None:
    found, cause = IN_D[name]
    assert found.causes == (() if cause is Cause.UNCLEAR else (cause,)), found.sentence
    assert (found.confidence is Confidence.LOW) is (cause is Cause.UNCLEAR)


def test_g9_an_unknown_uninterruptible_sleep_lowers_confidence() -> None:
    hidden = thread(11, state="D", waits={UNKNOWN_LOCK: LOOKS}, switches=[5, 5])
    found = told(sections(processes=[process(threads=[*HOT, hidden])]))
    assert found.confidence is Confidence.LOW and "sleeps uninterruptibly" in str(found.figures)


@pytest.mark.parametrize("cause", CASES)
def test_g11_the_cause_of_a_job_that_has_just_started_is_less_certain(cause: str) -> None:
    """What it waits for is said, and less surely; a steady state is none of a phase."""
    node = deepcopy(CASES[cause])
    node["process_activity"]["uptime_s"] = 140.0  # it started 100 s after boot
    before, found = told(CASES[cause]), told(node)
    assert found.causes == before.causes
    steady = cause in ("GPU-bound", "throttled", "lost", "idle", "waiting for requests", NONE)
    assert ("the job began only 40 s before the watch" in found.sentence) is not steady
    assert steady or found.confidence is not Confidence.HIGH
    assert (
        found.next_step.startswith("watch again in 3 min, when the job is 3 min old; ")
        is not steady
    )
    timed = diagnose(evidence(node), began_s=1.7e9 + 0.25)
    assert not isinstance(timed, str)
    after = "watch again in 3 min (after 2023-11-14 22:15:41+00:00), when the job is 3 min old; if"
    assert timed[0].next_step.startswith(after) is not steady


@pytest.mark.parametrize("age_s", [40.0, 900.0])
def test_g11_a_thread_that_is_hot_before_its_first_step_is_stuck_with_low_confidence(
    age_s: float,
) -> None:
    """Imports and compilation in the job's own process leave its GPU idle, too, and so does the
    engine of a server that polls for requests, however old it is."""
    hot = process(threads=[thread(10, 99, state="R", switches=[0, 2])], read_b=[0, 0])
    node = sections([HELD], [hot])
    node["process_activity"]["uptime_s"] = 100.0 + age_s  # it started 100 s after boot
    found = told(node)
    assert (found.causes, found.confidence.value) == ((Cause.STUCK,), "low"), found.sentence


def test_g11_a_job_that_compiles_does_not_prepare_input() -> None:
    compiler = process(20, [thread(20, 95)], parent=10, command="ptxas")
    found = told(sections(processes=[process(), compiler]))
    assert (found.causes, found.confidence) == ((Cause.PREPROCESSING,), Confidence.MEDIUM)
    assert "it compiles (ptxas)" in found.sentence
    assert found.next_step.startswith("watch again when that ends; if each step compiles")


def of_file(call: str, disk: str | None, read_b: int = 4096000, **rest: Any) -> GpuDiagnosis:
    """A job that waits for a file, beside another's disk that is busier."""
    sleep = {"call": call, "looks": LOOKS, "path": "/data/a", "point": "/data", **rest}
    sleep.update(filesystem="ext4" if disk else "nfs4", disk=disk)
    waits = {"folio_wait_bit_common": LOOKS}
    node = sections(
        processes=[
            process(threads=[thread(10, 5, waits=waits, sleeps=[sleep])], read_b=[0, read_b])
        ]
    )
    node["host_activity"]["disks"] = [
        {"name": name, "busy_ms": [0, busy], "reads": [0, 100], "read_ms": [0, 5000]}
        | {"writes": [0, 0], "write_ms": [0, 0]}
        for name, busy in (("nvme0n1", 3000), ("sdb", 9900))
    ]
    return told(node)


def test_g10_the_file_that_a_thread_waits_for_is_named_with_its_mount_and_disk() -> None:
    found = of_file("pread64", "nvme0n1")
    assert found.causes == (Cause.STORAGE,)
    assert "in pread64 of /data/a on /data, ext4, nvme0n1" in found.sentence
    assert "its disk is 30 % busy (nvme0n1, 50.0 ms a request)" in found.sentence
    assert "sdb" not in found.sentence and "iostat -xz 1 shows nvme0n1; " in found.next_step
    assert "nfsiostat" not in found.next_step and SMALL_READS in found.next_step
    assert "nfsiostat 1 shows its NFS mount" in of_file("pread64", None).next_step
    assert "disk" not in of_file("pread64", None).sentence, "NFS is on none"


def test_g10_larger_reads_are_not_advised_for_writes_or_large_reads() -> None:
    assert "checkpoints" in of_file("fsync", "nvme0n1").next_step
    large = of_file("read", "nvme0n1", 4 * 10**9)
    assert "its reads are large already" in large.next_step
    assert "larger reads" not in large.next_step


def test_g10_reads_of_pipes_do_not_count_as_small_reads() -> None:
    waits = [{"call": "read", "looks": 3}, {"call": "read", "looks": 2, "path": "/data/a"}]
    slept = thread(10, 5, waits={"folio_wait_bit_common": LOOKS}, sleeps=waits)
    found = told(sections(processes=[process(threads=[slept])]))
    assert {figure.name: figure.value for figure in found.figures}["read_size"] is None


def test_g1_a_few_ticks_on_the_other_socket_are_not_a_cause() -> None:
    node = sections(processes=[process(threads=[thread(10, 5, 1, cpu=20)])])
    assert told(node).cause is Cause.UNCLEAR


def test_g1_memory_is_named_only_if_its_pages_are_far() -> None:
    near, _, _ = DOUBTED["NUMA-remote with its memory near"]
    found = told(near)
    assert found.sentence.startswith("waits for CPUs of another NUMA node")
    assert "membind" not in found.next_step
    waits = {**DOWNLOADS, "cpu": 20, "user": [0, 300]}
    assert told(sections(processes=[process(threads=[waits])])).causes == (Cause.NETWORK,)


MOVES = {"cpu": None, "ticks": [40 * look for look in range(LOOKS)]}


@pytest.mark.parametrize(("far_looks", "cause"), [(5, Cause.UNCLEAR), (9, Cause.NUMA)])
def test_g1_a_thread_that_moves_is_remote_only_for_its_samples_on_far_cpus(
    far_looks: int, cause: Cause
) -> None:
    """It is on the far CPU at the last look in any case."""
    cpus = [0] * (LOOKS - far_looks) + [20] * far_looks
    node = sections(processes=[process(threads=[thread(10, 40, 20, **MOVES, cpus=cpus)])])
    found = told(node)
    assert found.causes == (() if cause is Cause.UNCLEAR else (cause,)), found.sentence
    (share,) = (each.value for each in found.figures if each.name == "remote_cpus")
    assert share == 10 * far_looks


def of_nodes(*nodes: JSON, gpu_node: int = 0) -> tuple[Cause, str]:
    """The cause of a thread on CPU 20 whose memory is on node 1, and what it waits for."""
    remote = process(threads=[thread(10, 40, 20, cpu=20)], pages={"1": 1 << 18})
    node = sections(processes=[remote])
    node["numa"] = {"online": f"0-{len(nodes) - 1}", "nodes": list(nodes)}
    node["pci"]["functions"][0]["numa_node"] = gpu_node
    found = told(node)
    return found.cause, found.sentence


@pytest.mark.parametrize(("distance", "cause"), [(12, Cause.UNCLEAR), (20, Cause.NUMA)])
def test_g1_another_node_of_the_same_socket_is_near(distance: int, cause: Cause) -> None:
    """Firmware can make several nodes of one socket: SNC, NPS."""
    found, sentence = of_nodes(
        {"id": 0, "cpulist": "0-15", "distances": [10, distance]},
        {"id": 1, "cpulist": "16-31", "distances": [distance, 10]},
    )
    assert found is cause, sentence


def test_g1_memory_of_a_numa_node_without_cpus_belongs_to_no_socket() -> None:
    """That of CXL, or of a Grace Hopper GPU, on whose node the GPU itself may be."""
    alone = {"id": 1, "cpulist": "", "cpus_present": "", "distances": [80, 10, 80]}
    nodes = (
        {"id": 0, "cpulist": "0-15", "distances": [10, 80, 40]},
        alone,
        {"id": 2, "cpulist": "16-31", "distances": [40, 90, 10]},
    )
    for gpu_node in (0, 1):
        cause, sentence = of_nodes(*nodes, gpu_node=gpu_node)
        if gpu_node == 0:
            assert cause is Cause.NUMA and "only 0 % of the job's memory" in sentence, sentence
        else:  # the CPUs of nodes 0 and 2 are equally near to it
            assert cause is Cause.UNCLEAR, sentence


GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpu", "near_gib", "cause", "text"),
    [
        (0, 0.5, Cause.NUMA, "waits for memory of another NUMA node"),
        (0, 1, Cause.UNCLEAR, ""),
        (20, 0.5, Cause.NUMA, "waits for CPUs and memory of another NUMA node"),
        (20, 9, Cause.NUMA, "nodevet could not read where its memory is"),
    ],
)
def test_g1_a_cgroup_shows_only_memory_that_cannot_be_near(
    cpu: int, near_gib: float, cause: Cause, text: str
) -> None:
    """numa_maps of a large process is not read, and the cgroup has memory of others, too."""
    large = process(threads=[thread(10, 40, 20, cpu=cpu)], pages=None, resident_kb=4 * GIB // 1024)
    group = cgroup(pages_b={"0": int(near_gib * GIB), "1": 100 * GIB})
    found = told(sections(processes=[large], groups=[group]))
    assert found.cause is cause and text in found.sentence, found.sentence


def test_g6_each_hot_thread_has_its_own_next_step() -> None:
    steps = {name: told(node).next_step for name, (node, _, _) in DOUBTED.items()}
    assert "num_workers" in steps["hot in user time"]
    assert "pin_memory" in steps["hot in user time while it copies"]
    assert "processes instead of threads" in steps["threads in turns"]
    assert "CUDA graphs" in steps["submission-bound that reads"]


def test_e30_a_cause_without_a_contradiction_keeps_high_confidence() -> None:
    """The same causes, of jobs that give no reason to doubt."""
    busy = told(sections([gpu(97, power_mw=[600000] * LOOKS)]))
    remote = process(threads=[thread(10, 40, 20, cpu=20)], pages={"1": 1 << 18})
    far = told(sections(processes=[remote]))
    assert far.sentence.startswith("waits for CPUs and memory of another NUMA node")
    for found in (busy, far):
        assert found.confidence is Confidence.HIGH and "; but" not in found.sentence


@pytest.mark.parametrize(("beside", "code"), [(False, 0), (True, 3)])
def test_a_server_whose_first_thread_waits_for_something_else_is_not_ok(
    beside: bool, code: int
) -> None:
    serves = asleep("epoll_wait", listens=True, connections=0)
    threads = [asleep("futex"), {**serves, "tid": 11}] if beside else [serves]
    found = told(sections([HELD], [process(threads=threads)]))
    assert found.cause is Cause.REQUESTS and found.is_doubtful is beside, found.sentence
    host = HostDiagnosis(host="a", status=Status.VETTED, gpus=(found,))
    watched = Diagnosis(id="1", nodevet="0", started="", seconds=9.0, hosts=(host,))
    assert watched.exit_code == code


@pytest.mark.parametrize("call", ["flock", "fcntl"])
def test_a_job_that_sleeps_on_a_file_lock_is_reported_as_waiting_for_it(call: str) -> None:
    found = told(sections([HELD], [process(threads=[asleep(call)])]))
    assert found.cause is Cause.UNCLEAR
    assert f"in {call} waits for a lock on a file" in found.sentence


def test_a_thread_that_writes_a_lot_in_the_kernel_is_not_submission_bound() -> None:
    """It writes a checkpoint."""
    writes = told(sections(processes=[process(threads=HOT, storage_written_b=[0, 1_100_000_000])]))
    assert Cause.SUBMISSION not in writes.causes, writes.sentence
    logs = told(sections(processes=[process(threads=HOT, storage_written_b=[0, 20_000_000])]))
    assert logs.causes == (Cause.SUBMISSION,)
