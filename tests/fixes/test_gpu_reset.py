"""Which GPUs are reset, with which others, and what stops for it; when it is refused."""

import subprocess

import msgspec
import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.remote.state import gpu_reset as on_node
from nodevet.resource import Resource, restore
from nodevet.resource.boot import Reboot
from nodevet.resource.core import ActionError, State
from nodevet.resource.gpu_reset import KIND, AwaitFabric, ResetGpu
from nodevet.resource.unit import SetUnit

PENDING = {"remapping": {"pending": True, "failure": False}}
FINE = {"remapping": {"pending": False, "failure": False}}
LINKS = {"nvlinks": [{"link": 0, "active": True}]}
REGISTERED = {"fabric": {"state": "COMPLETED"}}
A100 = {"gpu_architecture": "AMPERE", "virtualization_mode": "NONE", **LINKS}
V100 = {"gpu_architecture": "VOLTA", **LINKS}
DAEMON, MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
UNITS = (
    *(DAEMON, MANAGER, "nvidia-imex.service", "nvsm.service", "nodevet-persistence-mode.service"),
    *("nodevet-mig-mode.service", "nodevet-power-limit.service", "nodevet-gpu-clocks.service"),
    "nodevet-compute-mode.service",
)
ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
ENABLED = {**RUNS, "active_state": "inactive"}
STOPPED = {**ENABLED, "file_state": "disabled"}
SWITCH = {"address": "0000:c0:00.0", "class_code": "068000", "vendor": "10de"}


def node(h100, *gpus, units=None, functions=()):
    states = dict.fromkeys(UNITS, ABSENT) | (units or {})
    usual = {"virtualization_mode": "NONE", "nvlinks": None, **FINE}
    return {
        "gpu": h100(*(usual | gpu for gpu in gpus)),
        "pci": {"functions": list(functions)},
        "services": {"units": [{"name": name, **state} for name, state in states.items()]},
    }


def words(change):
    return [action.label for action in change.actions]


def test_one_hopper_gpu_is_reset_alone(plan, h100, uuid):
    sections = node(h100, LINKS | FINE, LINKS | PENDING | REGISTERED)
    (change,) = plan("row_remapping", {}, sections)
    assert change.actions == (
        ResetGpu(uuid=uuid(1), persistent=(uuid(1),)),
        AwaitFabric(uuid=uuid(1)),
    )
    assert change.resources == (Resource(kind="gpu_reset", name=uuid(1)),)
    assert (change.subjects, change.gpus, change.risk) == (("GPU 1",), (uuid(1),), Risk.DRAIN)
    assert change.actions[0].is_one_way
    assert "default power limit, clocks, compute mode" in change.note


def test_a_reset_stops_services_on_the_gpus_and_reapplies_settings(plan, h100, uuid):
    units = {
        DAEMON: RUNS,
        "nvidia-imex.service": RUNS,
        "nodevet-power-limit.service": ENABLED,
        "nodevet-gpu-clocks.service": RUNS,
        "nodevet-compute-mode.service": STOPPED,
    }
    (change,) = plan("row_remapping", {}, node(h100, PENDING, {}, units=units))
    own = ("nodevet-gpu-clocks", "nodevet-power-limit", "nvidia-imex", "nvidia-persistenced")
    names = [f"{name}.service" for name in own]
    assert [*change.actions[:4]] == [SetUnit(name=name, running=False) for name in names]
    assert [*change.actions[-4:]] == [SetUnit(name=name, running=True) for name in names[::-1]]
    # without the daemon every GPU loses persistence mode
    assert change.actions[4:-4] == (ResetGpu(uuid=uuid(0), persistent=(uuid(0), uuid(1))),)
    assert (
        change.note == "a reset GPU has the default compute mode: no unit of nodevet sets it again"
    )


def test_gpus_of_ampere_need_their_fabric_manager(plan, h100, uuid):
    """With it each is reset alone; without it all at once, and all must be free."""
    gpus = (A100 | PENDING, A100)
    sections = node(h100, *gpus, units={MANAGER: RUNS}, functions=[SWITCH])
    (change,) = plan("row_remapping", {}, sections)
    assert change.actions == (ResetGpu(uuid=uuid(0), persistent=(uuid(0),)),)
    sections = node(h100, *gpus, units={MANAGER: STOPPED}, functions=[SWITCH])
    (change,) = plan("row_remapping", {}, sections)
    both = (uuid(0), uuid(1))
    assert change.actions == (ResetGpu(uuid=uuid(0), others=(uuid(1),), persistent=both),)
    assert (change.gpus, change.subjects) == ((), ("GPU 0",))
    assert "also resets GPU 1" in change.note
    (change,) = plan("row_remapping", {}, node(h100, *gpus))  # bridges, no switches
    assert change.gpus == (uuid(0),)


def test_older_gpus_are_reset_together_without_the_fabric_manager(plan, h100, uuid):
    gpus = ({**V100, "nvlinks": []}, V100, V100 | PENDING)
    (change,) = plan("row_remapping", {}, node(h100, *gpus, units={MANAGER: RUNS}))
    reset = change.actions[1]
    assert words(change) == [f"stop {MANAGER}", reset.label, f"start {MANAGER}"]
    assert (reset.uuid, reset.others) == (uuid(2), (uuid(0), uuid(1)))
    assert reset.label == f"reset {uuid(2)} and all other GPUs"
    (change,) = plan("row_remapping", {}, node(h100, {**V100, **PENDING, "nvlinks": []}))
    assert change.actions == (ResetGpu(uuid=uuid(0), persistent=(uuid(0),)),)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (A100 | {"gpu_architecture": "FUTURE"}, "cannot tell which GPUs are reset with it: FUTURE"),
        (A100 | {"gpu_architecture": None}, "cannot tell which GPUs are reset with it"),
        (A100 | {"virtualization_mode": "PASSTHROUGH"}, "the host's NVSwitches.*PASSTHROUGH"),
        (A100 | {"virtualization_mode": "HOST_VGPU"}, "virtualization mode is HOST_VGPU"),
        (A100 | {"nvlinks": None, "errors": {"nvlinks": "NVML_ERROR_TIMEOUT"}}, "nvlinks: "),
        (A100 | {"nvlinks": [{"link": 3, "active": None}]}, "NVLink 3: "),
        ({"mig_current": True, "mig_devices": [{"index": 0}]}, "MIG devices, which a reset"),
        ({"mig_current": True, "mig_devices": None}, "MIG devices, which a reset"),
        ({"uuid": "GPU-1; reboot"}, "is not the UUID of a GPU"),
        ({"remapping": {"pending": True, "failure": True}}, r"GPU 0: a remap failed.*\(RMA\)"),
        ({"pstate": None, "errors": {"pstate": "NVML_ERROR_GPU_IS_LOST"}}, "GPU_IS_LOST: a reset"),
    ],
)
def test_a_gpu_that_cannot_be_reset_alone_or_safely_is_refused(plan, h100, gpu, why):
    with pytest.raises(FixError, match=why):
        plan("row_remapping", {}, node(h100, PENDING | gpu))


def test_a_reset_with_a_lost_peer_gpu_is_refused(plan, h100):
    lost = {"pstate": None, "errors": {"pstate": "NVML_ERROR_GPU_IS_LOST"}}
    with pytest.raises(FixError, match="GPU 1, which is reset too: NVML: NVML_ERROR_GPU_IS_LOST"):
        plan("row_remapping", {}, node(h100, V100 | PENDING, V100 | lost))


def test_a_board_to_replace_is_omitted(plan, h100):
    failed = {"remapping": {"pending": False, "failure": True}}
    (change,) = plan("row_remapping", {}, node(h100, PENDING, failed))
    assert change.subjects == ("GPU 0",)
    assert "not in the plan: GPU 1: a remap failed" in change.note
    spent = {"remapping": {"pending": True, "failure": False, "uncorrected": 600}}
    with pytest.raises(FixError, match="no reset restores spare rows"):
        plan("row_remapping", {"uncorrected": 512}, node(h100, spent))


def test_units_must_be_known(plan, h100):
    with pytest.raises(FixError, match="services: "):
        plan("row_remapping", {}, node(h100, PENDING) | {"services": {"status": "error"}})
    starting = {DAEMON: {**RUNS, "active_state": "activating"}}
    with pytest.raises(FixError, match="is activating; plan again"):
        plan("row_remapping", {}, node(h100, PENDING, units=starting))


# --- the other checks -------------------------------------------------------------------


def test_a_pending_repair_plans_a_reset(plan, h100, uuid):
    pending = {"repair": {"channel_pending": True, "tpc_pending": True}}
    broken = {"repair": {"channel_pending": True, "unrepairable_memory": True}}
    (change,) = plan("gpu_repair", {}, node(h100, pending, broken))
    assert (change.subjects, change.gpus) == (("GPU 0",), (uuid(0),))
    assert "GPU 1: its memory is unrepairable: have the GPU replaced" in change.note
    with pytest.raises(FixError, match="unrepairable"):
        plan("gpu_repair", {}, node(h100, broken))


def test_a_pending_page_retirement_plans_a_reset(plan, h100, uuid):
    t4 = {"gpu_architecture": "TURING", "remapping": {}, "nvlinks": []}
    pages = {"single_bit": 0, "double_bit": 1, "pending": True}
    (change,) = plan("retired_pages", {}, node(h100, t4 | {"retired_pages": pages}))
    assert change.actions == (ResetGpu(uuid=uuid(0), persistent=(uuid(0),)),)
    full = t4 | {"retired_pages": {**pages, "double_bit": 64}}
    with pytest.raises(FixError, match="no reset restores retired pages"):
        plan("retired_pages", {}, node(h100, full))


REQUIRED = {"pstate": None, "errors": {"pstate": "NVML_ERROR_RESET_REQUIRED"}}


@pytest.mark.parametrize(
    "gpu",
    [
        {"recovery_action": "GPU_RESET"},
        {"recovery_action": "DRAIN_AND_RESET"},
        {"recovery_action": "NONE", **REQUIRED},
        {"recovery_action": "GPU_RESET", **REQUIRED},
    ],
)
def test_a_gpu_that_asks_for_a_reset_gets_it(plan, h100, uuid, gpu):
    fine = {"recovery_action": "NONE", "pstate": 0, "memory_used_b": 0}
    (change,) = plan("gpu_lost", {}, node(h100, fine, fine | gpu))
    assert change.gpus == (uuid(1),)
    assert isinstance(change.actions[0], ResetGpu)


BOOT = "5f1c00aa-0000-4000-8000-000000000001"
REBOOT = Reboot(boot_id=BOOT)


@pytest.mark.parametrize(
    "gpu",
    [
        {"recovery_action": "NODE_REBOOT"},
        {"recovery_action": "BUS_RESET"},
        {"recovery_action": "SYSTEM_REBOOT"},
        {"recovery_action": "NODE_REBOOT", **REQUIRED},
        {"pstate": None, "errors": {"pstate": "NVML_ERROR_GPU_IS_LOST"}},
        {"errors": {"handle": "NVML_ERROR_UNKNOWN"}},
    ],
)
def test_a_gpu_that_a_reset_does_not_recover_gets_a_reboot(plan, h100, gpu):
    """Others are not reset then: a reboot resets them too."""
    sections = node(h100, {"recovery_action": "GPU_RESET"}, gpu) | {"host": {"boot_id": BOOT}}
    (change,) = plan("gpu_lost", {}, sections)
    assert change.actions == (REBOOT,)
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")
    assert change.subjects == ("GPU 0", "GPU 1")


@pytest.mark.parametrize("action", ["DRAIN_P2P", "SOMETHING_NEW"])
def test_a_recovery_action_that_no_reboot_completes_is_refused(plan, h100, action):
    gpus = ({"recovery_action": "GPU_RESET"}, {"recovery_action": action})
    sections = node(h100, *gpus) | {"host": {"boot_id": BOOT}}
    with pytest.raises(FixError, match=f"neither a reset nor a reboot: GPU 1: {action}"):
        plan("gpu_lost", {}, sections)


def test_a_gpu_off_the_bus_gets_a_reboot(plan, h100):
    sections = node(h100, {"recovery_action": "GPU_RESET"}) | {"host": {"boot_id": BOOT}}
    function = {"address": "0000:10:00.0", "class_code": "030200", "vendor": "10de"}
    sections["pci"] = {"functions": [function | {"revision": "ff"}]}
    (change,) = plan("gpu_lost", {}, sections)
    assert change.actions == (REBOOT,)


def test_a_plan_that_reboots_does_not_reset(plan, h100):
    sections = node(h100, {"recovery_action": "GPU_RESET"}) | {"host": {"boot_id": BOOT}}
    (change,) = plan("gpu_lost", {}, sections, options=("reboot",))
    assert change.actions == (REBOOT,)


@pytest.mark.parametrize(
    ("check", "needs"),
    [
        ("row_remapping", PENDING),
        ("gpu_repair", {"repair": {"channel_pending": True}}),
        ("retired_pages", {"retired_pages": {"pending": True}}),
    ],
)
def test_a_pending_repair_is_rebooted_if_the_plan_reboots(plan, h100, check, needs):
    """The next rung after a reset that did not help: another reset would not help either."""
    sections = node(h100, {}, needs) | {"host": {"boot_id": BOOT}}
    (change,) = plan(check, {}, sections, options=("reboot",))
    assert (change.actions, change.subjects) == ((REBOOT,), ("GPU 1",))
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")


def test_a_reboot_leaves_out_a_gpu_that_it_does_not_repair(plan, h100):
    broken = {"remapping": {"pending": True, "failure": True}}
    sections = node(h100, PENDING, broken) | {"host": {"boot_id": BOOT}}
    (change,) = plan("row_remapping", {}, sections, options=("reboot",))
    assert change.subjects == ("GPU 0",)
    assert "GPU 1: a remap failed, which no reset repairs" in change.note


def test_a_reboot_is_refused_if_the_boot_id_is_unknown(plan, h100):
    with pytest.raises(FixError, match="cannot tell which boot the node runs"):
        plan("gpu_lost", {}, node(h100, {"recovery_action": "NODE_REBOOT"}))


# --- on the node ------------------------------------------------------------------------


def test_the_state_of_a_gpu_lists_what_a_reset_is_needed_for():
    gpu = {
        "uuid": "GPU-1",
        "errors": {"pstate": "NVML_ERROR_RESET_REQUIRED"},
        "recovery_action": "GPU_RESET",
        "remapping": {"pending": True, "errors": {}},
        "retired_pages": {"pending": None, "errors": {"pending": "NVML_ERROR_NOT_SUPPORTED"}},
        "repair": {"channel_pending": False, "tpc_pending": True, "errors": {}},
    }
    other = {"uuid": "GPU-2", "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    section = {"status": "ok", "why": "", "data": {"gpus": [gpu, other]}}
    needs = ["remapping.pending", "repair.tpc_pending", "GPU_RESET", "NVML_ERROR_RESET_REQUIRED"]
    assert on_node.look("/", "GPU-1", section)["value"] == {"needed_for": needs}
    assert on_node.look("/", "GPU-2", section)["why"] == "NVML_ERROR_GPU_IS_LOST"
    assert on_node.look("/", "GPU-3", section)["why"] == "no GPU has this UUID"
    fine = {"recovery_action": "NODE_REBOOT", "errors": {}}
    calm = (
        gpu | fine | {"remapping": {"pending": None}, "repair": gpu["repair"] | {"tpc_pending": 0}}
    )
    section["data"]["gpus"] = [calm]
    assert on_node.look("/", "GPU-1", section)["value"] == {"needed_for": []}
    assert on_node.look("/", "GPU-1", {"status": "error", "why": "no"})["why"] == "NVML: no"


@pytest.fixture
def ran(tmp_path):
    """What an action's command does where nvidia-smi is this script of sh: its exit code, its
    last line, and the arguments of each call."""

    def run(action, script, seconds=20):
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n{script}\n')
        program.chmod(0o755)
        done = subprocess.run(
            ["/bin/sh", "-c", action.command(seconds=seconds).get_raw_value()],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        said = (done.stdout + done.stderr).splitlines()
        return done.returncode, said[-1] if said else "", (tmp_path / "calls").read_text()

    return run


@pytest.mark.parametrize(
    ("code", "said", "why"),
    [
        (3, "", "its driver cannot reset it: reboot the node; if that does not help, power it off"),
        (4, "", "no permission to reset it"),
        (9, "", "the NVIDIA driver is not loaded"),
        (15, "", "it is off the bus, where no reset reaches it: reboot the node"),
        (255, "GPU 0: In use by another client", "something holds it open; stop that, or reboot"),
        (255, "GPU 0: Unknown Error", "the reset failed: reboot the node; if that does not help"),
    ],
)
def test_a_failed_reset_says_why_and_persistence_mode_is_on_again(ran, uuid, code, said, why):
    action = ResetGpu(uuid=uuid(0), persistent=(uuid(0), uuid(1)))
    done = ran(action, f'case $1 in --gpu-reset) echo "{said}"; exit {code};; esac')
    assert done[0] == code and done[1].startswith(why)
    on = f"-pm 1 -i {uuid(0)},{uuid(1)}\n"
    assert done[2] == f"-pm 0 -i {uuid(0)}\n--gpu-reset -i {uuid(0)}\n{on}"


def test_all_gpus_are_reset_in_one_command_that_names_each(ran, uuid):
    """A GPU that appears after the plan was approved is not reset."""
    code, _, calls = ran(ResetGpu(uuid=uuid(0), others=(uuid(1),)), "exit 0")
    assert (code, calls) == (0, f"--gpu-reset -i {uuid(0)},{uuid(1)}\n")


def test_persistence_mode_that_stays_off_is_a_failure(ran, uuid):
    action = ResetGpu(uuid=uuid(0), persistent=(uuid(0),))
    code, said, _ = ran(action, 'case "$1$2" in -pm1) exit 3;; esac')
    assert (code, said) == (3, "persistence mode could not be restored")


def test_nodevet_waits_until_the_gpu_is_registered_with_the_fabric(ran, uuid, tmp_path):
    third = f"[ $(grep -c . {tmp_path}/calls) -ge 3 ] && echo Completed || echo In Progress"
    code, said, calls = ran(AwaitFabric(uuid=uuid(0)), third)
    assert (code, said, calls.count("fabric.state")) == (0, "", 3)
    code, said, _ = ran(AwaitFabric(uuid=uuid(0)), "echo Not Started", seconds=1)
    assert (code, said) == (1, "not registered with the fabric: Not Started")


# --- the resource -----------------------------------------------------------------------


def state(uuid, *needs):
    resource = Resource(kind="gpu_reset", name=uuid)
    return State(resource=resource, exists=True, value={"needed_for": list(needs)})


def test_a_reset_is_done_once_the_gpu_needs_none_and_cannot_be_restored(uuid):
    reset, needed = ResetGpu(uuid=uuid(0)), state(uuid(0), "remapping.pending", "GPU_RESET")
    assert KIND.holds(reset, needed) is False
    assert KIND.holds(reset, state(uuid(0))) is True
    assert KIND.holds(AwaitFabric(uuid=uuid(0)), state(uuid(0))) is None
    assert KIND.has_ended(needed, state(uuid(0))) and not KIND.has_ended(needed, needed)
    assert restore(needed, actions=[reset]) == ()


@pytest.mark.parametrize("name", ["GPU-1", "all", "", "GPU-00000000-5e7d-4e7d-8e7d-000000000000\n"])
def test_only_a_uuid_goes_into_a_command(name):
    assert KIND.name_problem(name)
    for action in (ResetGpu(uuid=name), AwaitFabric(uuid=name)):
        with pytest.raises(ActionError, match="is not the UUID of a GPU"):
            action.command(seconds=9)


@pytest.mark.parametrize("field", ["uuid", "others", "persistent"])
def test_a_plan_that_names_a_gpu_by_anything_but_its_uuid_is_refused(field, uuid):
    """Such a plan must not even be shown: the words are those of a command."""
    words = {"uuid": uuid(0), "others": [uuid(1)], "persistent": [uuid(0)]}
    words |= {field: "--help" if field == "uuid" else ["GPU-1;reboot"]}
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({"do": "reset_gpu", **words}, ResetGpu)
    with pytest.raises(msgspec.ValidationError, match="uuid"):
        msgspec.convert({"do": "await_fabric", "uuid": f"{uuid(0)}\n"}, AwaitFabric)
