"""Which GPUs are reset, with which others, and what stops for it; when it is refused."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, restore
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


def test_what_holds_the_gpus_stops_and_settings_come_back(plan, h100, uuid):
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
    assert change.note == "a reset GPU has the default compute mode: no unit of nodevet sets it"


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
def test_it_is_refused(plan, h100, gpu, why):
    with pytest.raises(FixError, match=why):
        plan("row_remapping", {}, node(h100, PENDING | gpu))


def test_a_peer_that_no_reset_reaches(plan, h100):
    lost = {"pstate": None, "errors": {"pstate": "NVML_ERROR_GPU_IS_LOST"}}
    with pytest.raises(FixError, match="GPU 1, which is reset too: NVML: NVML_ERROR_GPU_IS_LOST"):
        plan("row_remapping", {}, node(h100, V100 | PENDING, V100 | lost))


def test_a_board_to_replace_is_left_out(plan, h100):
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


# --- the resource -----------------------------------------------------------------------


def state(uuid, *needs):
    resource = Resource(kind="gpu_reset", name=uuid)
    return State(resource=resource, exists=True, value={"needed_for": list(needs)})


def test_what_a_reset_did(uuid):
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
