"""Which baseline a node gets: a truth table, and never a guess."""

import msgspec
import pytest

from nodevet.baseline import choose
from nodevet.baseline.choose import detected_gpus
from nodevet.evidence.core import SCHEMA
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Host
from nodevet.model.baseline import Applies, Baseline, GpuMatch

H100, A100 = "10de:2330", "10de:20b2"
B400, B500 = "10de:1463", "10de:147f"


def gpu(index, device=H100, subsystem=B400, bus=None, errors=None):
    return {
        "index": index,
        "bus_id": bus or f"0000:{index + 1:02x}:00.0",
        "pci_device": device,
        "pci_subsystem": subsystem,
        "errors": errors or {},
    }


def function(index, device=H100, subsystem=B400, **other):
    def half(value, part):
        return value.split(":")[part] if value else None

    return {
        "address": f"0000:{index + 1:02x}:00.0",
        "class_code": "030200",
        "vendor": "10de",
        "device": half(device, 1),
        "subsystem_vendor": half(subsystem, 0),
        "subsystem_device": half(subsystem, 1),
        **other,
    }


def evidence(nvml=None, pci=None) -> Evidence:
    """`nvml` and `pci` are lists of records, or the reason why a section is an error."""

    def section(records, field):
        if isinstance(records, str):
            return {"status": "error", "why": records}
        return {"status": "ok", "data": {field: records}}

    sections = {
        "gpu": section(nvml if nvml is not None else "no NVML", "gpus"),
        "pci": section(pci if pci is not None else "no sysfs", "functions"),
    }
    return decode(msgspec.json.encode({"schema": SCHEMA, "probe": "1", "sections": sections}))


def node(count, device=H100, subsystem=B400):
    return evidence(
        [gpu(i, device, subsystem) for i in range(count)],
        [function(i, device, subsystem) for i in range(count)],
    )


def baseline(name, lineage=(), **applies) -> Baseline:
    gpu_part = {
        key: applies.pop(key) for key in ("devices", "subsystems", "count") if key in applies
    }
    for key in ("hosts", "groups"):
        if key in applies:
            applies[key] = frozenset(applies[key])
    if gpu_part:
        applies["gpu"] = GpuMatch(**gpu_part)
    return Baseline(
        name=name, path=name, lineage=lineage, applies=Applies(**applies) if applies else None
    )


HOST = Host(name="gpu001", groups=frozenset({"train"}))
BY_HOST = baseline("by-host", hosts=["gpu001"])
BY_GROUP = baseline("by-group", groups=["train", "other"])
BY_BOARD = baseline("by-board", devices=(H100,), subsystems=(B400,))
BY_DEVICE = baseline("by-device", devices=(H100,))
ANY_GPU = baseline("any-gpu", count=8)
OTHER = baseline("other", devices=(A100,))
NO_APPLIES = baseline("no-applies")


@pytest.mark.parametrize(
    ("baselines", "wanted"),
    [
        ([BY_DEVICE, OTHER], BY_DEVICE),
        ([BY_DEVICE, ANY_GPU], BY_DEVICE),
        ([BY_DEVICE, BY_BOARD], BY_BOARD),
        ([BY_BOARD, BY_GROUP], BY_GROUP),
        ([BY_GROUP, BY_HOST], BY_HOST),
        ([BY_HOST, BY_GROUP, BY_BOARD, BY_DEVICE, ANY_GPU, NO_APPLIES], BY_HOST),
        ([ANY_GPU, OTHER], ANY_GPU),
        ([NO_APPLIES, BY_DEVICE], BY_DEVICE),
        ([OTHER, baseline("both", devices=(A100, H100))], baseline("both", devices=(A100, H100))),
        ([baseline("h", hosts=["gpu001"], devices=(H100,)), BY_HOST], "h"),
        ([baseline("h", hosts=["gpu001"], devices=(A100,)), BY_GROUP], BY_GROUP),
        ([baseline("h", hosts=["gpu002"]), BY_DEVICE], BY_DEVICE),
        ([baseline("g", groups=["storage"]), BY_DEVICE], BY_DEVICE),
    ],
)
def test_the_most_specific_fitting_baseline_wins_in_any_order(baselines, wanted):
    name = wanted if isinstance(wanted, str) else wanted.name
    for order in (baselines, baselines[::-1]):
        found = choose(order, node(8), HOST)
        assert isinstance(found, Baseline), found
        assert found.name == name


def test_a_single_baseline_must_fit_too():
    assert choose([EIGHT], node(8), HOST) is EIGHT
    assert choose([OTHER], node(8), HOST) == (
        f"{OTHER.name} does not fit: the GPUs are 8 × 10de:2330; "
        "name one with -b (-b generic judges any GPU), "
        'or write one with `applies: {gpu: {device: "10de:2330"}}`'
    )


def test_a_node_with_a_lost_gpu_without_an_id_keeps_its_baseline():
    lost = {"index": 7, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    listed = [*(gpu(index) for index in range(7)), lost]
    for bus in ([function(index) for index in range(8)], [function(index) for index in range(7)]):
        assert choose([EIGHT, OTHER], evidence(listed, bus), HOST) is EIGHT
    assert choose([EIGHT, OTHER], evidence(listed, "no sysfs"), HOST) is EIGHT


def test_lost_gpus_alone_choose_no_baseline():
    lost = {"index": 0, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    assert "GPU 0 shows no id" in choose([EIGHT, OTHER], evidence([lost], []), HOST)


def test_a_baseline_without_applies_is_never_chosen():
    assert choose([NO_APPLIES, baseline("second")], node(8), HOST) == (
        "none of no-applies, second says which nodes it is for (applies); name one with -b"
    )
    assert choose([NO_APPLIES, OTHER], node(8), HOST) == (
        "other does not fit: the GPUs are 8 × 10de:2330; "
        "name one with -b (-b generic judges any GPU), "
        'or write one with `applies: {gpu: {device: "10de:2330"}}`'
    )


EIGHT = baseline("eight", devices=(H100,), count=8)
FOUR = baseline("four", devices=(H100,), count=4)
ANY = baseline("any", devices=(H100,))


@pytest.mark.parametrize("seen", range(1, 9))
def test_a_node_that_lost_gpus_keeps_its_baseline(seen):
    assert choose([EIGHT, OTHER], node(seen), HOST) is EIGHT
    assert choose([EIGHT, ANY], node(seen), HOST) is EIGHT


@pytest.mark.parametrize("seen", [5, 6, 7, 8])
def test_a_baseline_for_fewer_gpus_than_the_node_shows_loses_a_tie(seen):
    assert choose([FOUR, EIGHT], node(seen), HOST) is EIGHT


@pytest.mark.parametrize("seen", [1, 3, 4])
def test_four_gpus_or_fewer_leave_the_baselines_of_four_and_eight_tied(seen):
    assert choose([FOUR, EIGHT], node(seen), HOST) == (
        f"four, eight fit equally well, for a node that shows {seen} GPUs may have lost some; "
        "name one with -b, or tell the nodes apart by inventory group (applies: {groups: ...})"
    )


def test_more_gpus_than_any_baseline_counts():
    assert choose([FOUR, OTHER], node(8), HOST) is FOUR
    assert choose([FOUR, ANY], node(8), HOST) is ANY


def test_a_tie_is_reported_and_not_broken():
    twin = baseline("twin", devices=(H100,))
    assert choose([BY_DEVICE, twin], node(8), HOST) == (
        "by-device, twin fit equally well; name one with -b, "
        "or tell the nodes apart by inventory group (applies: {groups: ...})"
    )


def test_a_baseline_wins_over_the_one_that_it_extends():
    own = baseline("own", lineage=("eight",), devices=(H100,))
    smaller = baseline("smaller", lineage=("eight",), devices=(H100,), count=4)
    assert choose([EIGHT, own], node(8), HOST) is own
    assert choose([EIGHT, smaller], node(8), HOST) is EIGHT
    assert isinstance(choose([EIGHT, smaller], node(4), HOST), str)


def test_gpus_of_several_kinds_are_reported():
    mixed = evidence(
        [gpu(i, A100 if i == 3 else H100) for i in range(4)],
        [function(i, A100 if i == 3 else H100) for i in range(4)],
    )
    assert choose([BY_DEVICE, OTHER], mixed, HOST) == (
        "none of by-device, other fits: the GPUs are 1 × 10de:20b2, 3 × 10de:2330 (mixed); "
        "name one with -b (-b generic judges any GPU), or write one that does"
    )


def test_a_gpu_that_only_nvml_or_only_the_pci_bus_lists_still_counts():
    foreign_on_bus = evidence([gpu(0)], [function(0), function(1, A100)])
    foreign_in_nvml = evidence([gpu(0), gpu(1, A100)], [function(0)])
    for found in (foreign_on_bus, foreign_in_nvml):
        assert "(mixed)" in choose([BY_DEVICE, OTHER], found, HOST)
    without_nvml = evidence("driver not loaded", [function(0)])
    without_bus = evidence([gpu(0)], "no /sys")
    for found in (without_nvml, without_bus):
        assert choose([BY_DEVICE, OTHER], found, HOST) is BY_DEVICE


def test_a_lost_gpu_is_known_by_the_bus():
    lost = gpu(1, None, None, errors={"handle": "NVML_ERROR_GPU_IS_LOST"})
    assert (
        choose([EIGHT, OTHER], evidence([gpu(0), lost], [function(0), function(1)]), HOST) is EIGHT
    )


LOST = gpu(1, None, None, errors={"handle": "NVML_ERROR_GPU_IS_LOST"})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (evidence(), "the GPUs could not be read (PCI: no sysfs)"),
        (evidence([], "no /sys"), "NVML lists no GPU and the bus could not be read (no /sys)"),
        (
            evidence([gpu(0), LOST], "no /sys"),
            "GPU 1 shows no id (NVML_ERROR_GPU_IS_LOST)",
        ),
        (
            evidence("no NVML", [function(0), function(1, device=None)]),
            "PCI function 0000:02:00.0 shows no id",
        ),
        (
            evidence("no NVML", [function(0), function(1, class_code=None, device=None)]),
            "PCI function 0000:02:00.0 shows no id",
        ),
        (
            evidence([gpu(0, A100)], [function(0, H100)]),
            "0000:01:00.0 is 10de:2330 on the bus and 10de:20b2 to NVML",
        ),
    ],
)
def test_missing_evidence_is_reported_and_not_guessed(found, why):
    assert choose([BY_DEVICE, OTHER], found, HOST) == (
        f"cannot tell whether by-device fits: {why}; name one with -b"
    )
    # a more specific one that needs no GPU is certain all the same
    assert choose([BY_DEVICE, BY_GROUP], found, HOST) is BY_GROUP


def test_a_board_without_a_subsystem_id_is_not_guessed():
    found = node(8, subsystem=None)
    assert choose([BY_DEVICE, BY_BOARD], found, HOST) == (
        "cannot tell whether by-board fits: a 10de:2330 shows no subsystem id; name one with -b"
    )


def test_a_node_without_a_gpu_fits_no_gpu_baseline():
    assert choose([BY_DEVICE, ANY_GPU], evidence([], []), HOST) == (
        "none of by-device, any-gpu fits: the node shows no NVIDIA GPU; "
        "name one with -b (-b generic judges any GPU), or write one that does"
    )


def test_other_pci_functions_do_not_count_as_gpus():
    bus = [
        function(0),
        function(1, "15b3:1021", vendor="15b3", class_code="020700"),
        function(2, "10de:22a3", class_code="068000"),  # NVSwitch
    ]
    assert choose([BY_DEVICE, OTHER], evidence([gpu(0)], bus), HOST) is BY_DEVICE


def test_d13_a_vgpu_does_not_fit_the_baseline_of_its_physical_gpu():
    share = gpu(0, H100, "10de:1a2b") | {"virtualization_mode": "VGPU"}
    seen = evidence([share], [function(0, H100, "10de:1a2b")])
    board = baseline("board", devices=(H100,))
    told = choose([board], seen, Host(name="guest"))
    assert isinstance(told, str)
    assert "board does not fit: the GPUs are 1 × 10de:2330 (vGPU)" in told
    profile = baseline("profile", devices=(H100,), subsystems=("10de:1a2b",))
    assert choose([board, profile], seen, Host(name="guest")) is profile
    whole = evidence([share | {"virtualization_mode": "PASSTHROUGH"}], [function(0)])
    assert choose([board], whole, Host(name="guest")) is board


def test_d13_virtual_functions_of_a_vgpu_host_do_not_count_as_gpus():
    virtual = [function(i, address=f"0000:01:00.{i}", physfn="0000:01:00.0") for i in range(4, 8)]
    seen = evidence([gpu(0)], [function(0), *virtual])
    assert len(detected_gpus(seen)) == 1


def test_gpus_that_fit_no_baseline_are_reported_by_name_and_id():
    named = {**gpu(0, "10de:2204"), "name": "NVIDIA GeForce RTX 3090"}
    several = [msgspec.structs.replace(OTHER, name=f"b{n}", path=f"b{n}") for n in range(4)]
    told = choose(several, evidence([named], [function(0, "10de:2204")]), HOST)
    assert told.startswith(
        "none of 4 baselines fits: the GPUs are 1 × NVIDIA GeForce RTX 3090 (10de:2204); "
    )
