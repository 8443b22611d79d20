"""Which limits are set, what the unit says, and what is refused."""

import pytest

from nodevet.fixes.power_limit import words
from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

UNIT = """\
# Written by nodevet: the boot-time owner of power_limit.
[Unit]
Description=power_limit of the GPUs, as nodevet set it
After=nvidia-persistenced.service nvidia-fabricmanager.service nodevet-persistence-mode.service \
nodevet-mig-mode.service
Before=slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=5min
ExecStart=/bin/sh -c '\\
    failed=0; \\
    nvidia-smi -i GPU-00000000-5e7d-4e7d-8e7d-000000000000 -pl 700 || failed=1; \\
    nvidia-smi -i GPU-00000001-5e7d-4e7d-8e7d-000000000000 -pl 700 || failed=1; \\
    exit $$failed'

[Install]
WantedBy=multi-user.target
"""
LOW = {"power_limit_mw": 500_000, "power_limit_enforced_mw": 500_000}


def test_a_low_power_limit_is_raised_now_and_at_boot(plan, h100, uuid):
    (change,) = plan("power_limit", 700, {"gpu": h100({}, LOW)})
    assert (change.expected, change.actual, change.unit) == (700, 500, "W")
    assert change.subjects == ("GPU 1",)
    assert change.actions == (
        WriteFile(path="/etc/systemd/system/nodevet-power-limit.service", content=UNIT),
        SetUnit(name="nodevet-power-limit.service", enabled=True),
        RunCommand(words=("nvidia-smi", "-i", uuid(1), "-pl", "700")),
    )
    assert change.resources == (
        Resource(kind="file", name="/etc/systemd/system/nodevet-power-limit.service"),
        Resource(kind="unit", name="nodevet-power-limit.service"),
        Resource(kind="gpu", name=f"{uuid(1)}:power_limit_mw"),
    )
    assert (change.risk, change.effective, change.gpus, change.note) == (Risk.LIVE, "now", (), "")


def test_the_unit_is_the_same_whichever_gpu_is_wrong_and_in_any_order(plan, h100):
    units = set()
    for gpus in ((LOW, {}), ({}, LOW), (LOW, LOW)):
        section = h100(*gpus)
        units.add(plan("power_limit", 700, {"gpu": section})[0].actions[0])
        section["gpus"].reverse()
        units.add(plan("power_limit", 700, {"gpu": section})[0].actions[0])
    assert {unit.content for unit in units} == {UNIT}


def test_different_boards_have_different_limits_in_one_unit(plan, h100, uuid):
    board = {"power_limit_default_mw": 387_500} | LOW
    (change,) = plan("power_limit", "default", {"gpu": h100(LOW, board)})
    assert change.expected == {"GPU 0": 700, "GPU 1": 387.5}
    assert change.actual == 500
    unit = change.actions[0].content
    assert f"-i {uuid(0)} -pl 700 ||" in unit
    assert f"-i {uuid(1)} -pl 387.5 ||" in unit


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        ({"power_limit_max_mw": 400_000}, "allows 200-400 W"),
        ({"power_limit_min_mw": 800_000, "power_limit_max_mw": 900_000}, "allows 800-900 W"),
        ({"power_limit_min_mw": None}, "power_limit_min_mw: not in the evidence"),
        ({"power_limit_max_mw": None}, "power_limit_max_mw: not in the evidence"),
        ({"power_limit_min_mw": 0}, "allows 0-700 W"),
        ({"uuid": None}, "uuid: not in the evidence"),
        ({"uuid": "GPU-1; reboot"}, "'GPU-1; reboot' is not the UUID"),
        ({"errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}, "NVML_ERROR_GPU_IS_LOST"),
        (
            {"temperature_gpu_c": None, "errors": {"temperature_gpu_c": "NVML_ERROR_GPU_IS_LOST"}},
            "repair this first",
        ),
    ],
)
def test_one_unusable_gpu_refuses_the_node_even_if_its_own_limit_is_ok(plan, h100, gpu, told):
    with pytest.raises(FixError) as refused:
        plan("power_limit", 700, {"gpu": h100(LOW, gpu)})
    assert "GPU 1" in str(refused.value) and told in str(refused.value)


def test_a_gpu_that_another_limiter_holds_lower_is_refused(plan, h100):
    held = {"power_limit_enforced_mw": 450_000}
    with pytest.raises(FixError, match=r"GPU 0: .*another limiter holds it lower"):
        plan("power_limit", 700, {"gpu": h100(held, {})})
    (change,) = plan("power_limit", 700, {"gpu": h100(held, LOW)})
    assert change.subjects == ("GPU 1",)
    assert "GPU 0: its limit is set as expected" in change.note


def test_persistence_mode_off_is_reported(plan, h100):
    (change,) = plan("power_limit", 700, {"gpu": h100(LOW | {"persistence_mode": False}, LOW)})
    assert "persistence mode was not on (GPU 0)" in change.note


def test_gpus_without_persistence_mode_are_named_in_ranges(plan, h100):
    off = LOW | {"persistence_mode": False}
    (change,) = plan("power_limit", 700, {"gpu": h100(off, off, off)})
    assert "persistence mode was not on (GPU 0-2)" in change.note


def test_a_gpu_without_a_limit_is_omitted(plan, h100, uuid):
    none = {
        "pci_device": "10de:1eb8",  # another model: those of one model have the same features
        "power_limit_mw": None,
        "power_limit_min_mw": None,
        "errors": {"power_limit_mw": "NVML_ERROR_NOT_SUPPORTED"},
    }
    (change,) = plan("power_limit", "default", {"gpu": h100(LOW, none)})
    assert uuid(1) not in change.actions[0].content


def test_a_limit_within_the_tolerance_is_not_touched(plan, h100):
    near = {"power_limit_mw": 699_000, "power_limit_enforced_mw": 699_000}
    params = {"watts": 700, "tolerance": "1%"}
    (change,) = plan("power_limit", params, {"gpu": h100(near, LOW)})
    assert change.subjects == ("GPU 1",)
    assert sum(isinstance(action, RunCommand) for action in change.actions) == 1


@pytest.mark.parametrize(
    ("mw", "text"), [(700_000, "700"), (1, "0.001"), (99_999, "99.999"), (1_000_000, "1000")]
)
def test_milliwatts_become_watts_on_the_command_line(mw, text):
    assert words(mw) == ("-pl", text)
