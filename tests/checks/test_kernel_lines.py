"""From lines of a kernel log, as the kernel prints them, to what the checks say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.recovery import RECOVERIES, Remedy
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.collectors import kernel_log

GPU = {"index": 0, "bus_id": "0000:19:00.0", "gpu_architecture": "BLACKWELL", "pstate": 0}
PCI = {"address": "0000:19:00.0", "class_code": "030200", "vendor": "10de", "revision": "a1"}
XID = "NVRM: Xid (PCI:0000:19:00): "
OF_PROCESS = (
    "",
    "pid=4242, name=python3, ",
    "pid='<unknown>', name=<unknown>, ",
    "pid=1, name=a, (b), ",
)
JUDGES = ("xid", "kernel_faults", "storage_errors", "machine_check", "pcie_errors", "gpu_lost")
NAMES = (  # of processes: what fits into 15 bytes of lines that nodevet knows
    "NVRM: Xid (PCI", "NVRM: Xid (PCI:", "NVRM: Xid", "NVRM: GPU 18:00", "nvidia-nvswitch",
    "EDAC MC0: 1 UE ", "EDAC MC: fatal", "MCE 1: x", "MCE: Killing x", "Oops: 0 [#1]",
    "Out of memory", "INFO: task x", "Linux version 6", "BUG: Bad page s", "kernel BUG at x",
    "nvme nvme0: I/O", "XFS (a): Shut",
)  # fmt: skip
FORMS = (
    "{}[42] bad frame in rt_sigreturn frame:0000000012345678 ip:7f sp:7f orax:f in x[7f+1]",
    "{}[42]: segfault at 0 ip 0 sp 0 error 4 in GPU 0000:19:00.0 fallen off the bus SXid[0+1]",
    "{}/42: potentially unexpected fatal signal 11.",
    "{}: 79 output lines suppressed due to ratelimiting",
    "cgroup: fork rejected by pids controller in /{}: 0000 [#1]",
    "input: [Hardware Error]: System Fatal error. {} as /devices/pci0000:00/usb1/input/input7",
)

Ask = Callable[..., list[Finding]]


@pytest.fixture
def judged(
    tmp_path: Path,
    ask: Callable[..., Any],
    make_params: Callable[..., Any],
    make_document: Callable[..., Any],
) -> Callable[..., list[Finding]]:
    """What a check says of a node with one GPU whose kernel logged these lines, a minute apart."""

    def judge(check: str, *lines: str, params: Any = None, gpu: Any = None) -> list[Finding]:
        (tmp_path / "dev").mkdir(exist_ok=True)
        rows = ("Linux version 6.8.0 (x@y)", *lines)
        text = "".join(f"4,{n},{n * 60000000},-;{row}\n" for n, row in enumerate(rows))
        (tmp_path / "dev/kmsg").write_text(text)
        log = kernel_log.collect(str(tmp_path.resolve()), {})
        sections = {
            "gpu": {"count": 1, "gpus": [{**GPU, **(gpu or {"recovery_action": "NONE"})}]},
            "pci": {"functions": [PCI]},
            "kernel_log": log,
        }
        found: list[Finding] = ask(check, make_params(check, params or {}), make_document(sections))
        return found

    return judge


def of_gpu(findings: list[Finding]) -> Finding:
    (found,) = (each for each in findings if each.subject.label == "GPU 0")
    return found


@pytest.mark.parametrize("unit", ["TLW_RX_PIPE1", "TLW_TX_PIPE0", "TLW_RX/TLW_RX_PIPE1", "TLW_TX"])
def test_e11_a_link_unit_status_that_needs_a_reset_fails_for_every_unit_name(
    judged: Ask, unit: str
) -> None:
    line = f"{XID}146, {unit} Nonfatal XC0 i0 Link 03 (0x0000000b 0x{{}} 0x00000000)"
    assert of_gpu(judged("xid", line.format("00000004"))).verdict is Verdict.FAIL
    assert of_gpu(judged("xid", line.format("00000001"))).verdict is Verdict.OK


def test_e11_a_network_card_that_failed_fails_the_node(judged: Ask) -> None:
    line = "mlx5_core 0000:17:00.0: poll_health:834:(pid 0): Fatal error 3 detected"
    (found,) = judged("kernel_faults", line)
    assert (found.verdict, found.why) == (Verdict.FAIL, "mlx5_core 0000:17:00.0 ×1")
    assert judged("kernel_faults", line, params={"allow": ["nic_failed"]})[0].verdict is Verdict.OK


@pytest.mark.parametrize(
    "action", [each for each in RECOVERIES if each.remedy is not Remedy.NOTHING]
)
def test_e12_a_recovery_action_has_one_advice_in_every_check(judged: Ask, action: Any) -> None:
    line = f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x{action.number:x} (x)"
    by_log = of_gpu(judged("xid", line))
    check = "imex" if action.name == "RECOVER_IMEX_DOMAIN" else "gpu_lost"
    by_nvml = of_gpu(judged(check, gpu={"recovery_action": action.name}))
    assert by_log.verdict is by_nvml.verdict is Verdict.FAIL
    assert by_log.advice == by_nvml.advice == action.remedy.value


def test_e12_a_gpu_that_waits_for_its_domain_is_not_lost(judged: Ask) -> None:
    found = of_gpu(judged("gpu_lost", gpu={"recovery_action": "RECOVER_IMEX_DOMAIN"}))
    assert found.verdict is Verdict.OK


@pytest.mark.parametrize("check", JUDGES)
def test_e13_a_name_of_a_process_changes_no_verdict(judged: Ask, check: str) -> None:
    real = (
        f"{XID}79, pid=1, name=NVRM: Xid (PCI, GPU has fallen off the bus.",
        "Out of memory: Killed process 42 (EDAC MC0: 1 UE) total-vm:1kB",
        "pcieport 0000:17:01.0: AER: Corrected error received: 0000:19:00.0",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0 (channel:0 slot:0)",
    )
    noise = [form.format(name) for form in FORMS for name in NAMES]
    for lines in ((), real):
        said = [(each.verdict, each.actual) for each in judged(check, *lines)]
        beside = [each for each in judged(check, *lines, *noise) if "not judged" not in each.why]
        assert [(each.verdict, each.actual) for each in beside] == said


@pytest.mark.parametrize("process", OF_PROCESS)
def test_e15_a_link_is_decoded_whatever_process_the_line_names(judged: Ask, process: str) -> None:
    mild = (
        f"{XID}145, {process}RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000001 0x00000000)"
    )
    fatal = (
        f"{XID}145, {process}RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040 0x00000000)"
    )
    by_user = (
        f"{XID}149, {process}NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x026425c6 0x00000000 0x00000000)"
    )
    assert of_gpu(judged("xid", mild)).verdict is Verdict.OK
    assert of_gpu(judged("xid", fatal)).verdict is Verdict.FAIL
    assert of_gpu(judged("xid", by_user)).verdict is Verdict.OK


@pytest.mark.parametrize("process", OF_PROCESS)
def test_e15_a_recovery_action_is_read_whatever_process_the_line_names(
    judged: Ask, process: str
) -> None:
    line = f"{XID}154, {process}GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    assert of_gpu(judged("xid", line)).advice == Remedy.REBOOT.value


@pytest.mark.parametrize("code", [11, 25, 37, 51, 66, 67, 106, 107, 152, 153])
def test_e15_the_numbers_of_the_catalogue_are_known(judged: Ask, code: int) -> None:
    assert "unknown to nodevet" not in of_gpu(judged("xid", f"{XID}{code}, pid=1, name=x, y")).why


def test_e15_a_finding_names_nvidias_milder_action_and_policy_nvidia_follows_it(
    judged: Ask,
) -> None:
    line = f"{XID}94, pid=1, name=x, Contained: SM (0x1). RST: No, D-RST: No"
    strict, mild = (
        of_gpu(judged("xid", line)),
        of_gpu(judged("xid", line, params={"policy": "nvidia"})),
    )
    assert strict.verdict is Verdict.FAIL
    assert "NVIDIA's action is RESTART_APP for 94: `policy: nvidia` follows it" in strict.why
    assert mild.verdict is Verdict.OK


def test_e16_an_unknown_xid_fails_until_the_gpu_is_reset(judged: Ask) -> None:
    line, reset = f"{XID}999, pid=1, name=x, y", "vfio-pci 0000:19:00.0: reset done"
    assert of_gpu(judged("xid", line)).verdict is Verdict.FAIL
    assert of_gpu(judged("xid", line, reset)).verdict is Verdict.OK
    assert of_gpu(judged("xid", line, reset, line)).verdict is Verdict.FAIL
