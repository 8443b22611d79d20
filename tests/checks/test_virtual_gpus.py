"""A vGPU host: the GPUs are the driver's, their virtual functions are for its guests."""

import pytest

from nodevet.model import Verdict

A16 = {"vendor": "10de", "device": "25b6", "class_code": "030200", "revision": "a1"}
BOARD = {"subsystem_vendor": "10de", "subsystem_device": "14a9"}


def functions(gpus, virtual, driver):
    """So many GPUs, and so many virtual functions of each."""
    for bus in range(1, gpus + 1):
        physical = f"0000:{bus:02x}:00.0"
        yield {"address": physical, "driver": "nvidia", "upstream": [], **A16, **BOARD}
        for number in range(virtual):
            address = (
                f"0000:{bus:02x}:{number // 8:02x}.{number % 8 + 4 if number < 4 else number % 8}"
            )
            rest = {"driver": driver, "physfn": physical, "upstream": []}
            yield {"address": address, **A16, **BOARD, **rest}


def gpu(index):
    return {
        "index": index,
        "bus_id": f"0000:{index + 1:02x}:00.0",
        "minor_number": index,
        "pci_device": "10de:25b6",
        "pci_subsystem": "10de:14a9",
        "pstate": 0,
        "recovery_action": "NONE",
        "persistence_mode": True,
    }


@pytest.fixture
def host(make_document):
    """Four GPUs of an A16 with 16 virtual functions each."""

    def of(driver, nvml=4):
        sections = {
            "gpu": {"count": nvml, "gpus": [gpu(index) for index in range(nvml)]},
            "pci": {"functions": list(functions(4, 4, driver))},
            "modules": {"device_nodes": [{"path": f"/dev/nvidia{minor}"} for minor in range(4)]},
        }
        return make_document(sections)

    return of


CHECKS = (
    ("gpu_count", 4),
    ("gpu_lost", {}),
    ("gpu_model", "10de:25b6"),
    ("persistence_mode", True),
)


@pytest.mark.parametrize("driver", ["nvidia", "vfio-pci", None])
@pytest.mark.parametrize(("check", "params"), CHECKS)
def test_d13_virtual_functions_do_not_count_as_gpus(host, ask, make_params, driver, check, params):
    found = ask(check, make_params(check, params), host(driver))
    assert {finding.verdict for finding in found} == {Verdict.OK}


@pytest.mark.parametrize(("check", "params"), CHECKS)
def test_d13_virtual_functions_do_not_hide_a_missing_gpu(host, ask, make_params, check, params):
    found = ask(check, make_params(check, params), host("nvidia", nvml=3))
    assert {finding.verdict for finding in found} & {Verdict.FAIL, Verdict.UNKNOWN}


def test_d13_the_gpu_count_is_unknown_if_physfn_was_not_read(host, ask, make_params):
    document = host("nvidia")
    virtual = document["sections"]["pci"]["data"]["functions"][1]
    virtual.update(physfn=None, errors={"physfn": "EACCES"})
    found = ask("gpu_count", make_params("gpu_count", 4), document)
    assert found[0].verdict is Verdict.UNKNOWN
    assert "physfn: permission denied (EACCES)" in found[0].why


def test_d13_gpus_reserved_for_virtual_machines_are_not_counted(host, ask, make_params):
    document = host("nvidia", nvml=3)
    held = document["sections"]["pci"]["data"]["functions"][-5]
    held["driver"] = "vfio-pci"
    document["sections"]["modules"]["data"]["device_nodes"].pop()
    three = ask("gpu_count", make_params("gpu_count", 3), document)
    assert [finding.verdict for finding in three] == [Verdict.OK, Verdict.NOT_APPLICABLE]
    four = ask("gpu_count", make_params("gpu_count", 4), document)
    assert [finding.verdict for finding in four] == [Verdict.FAIL, Verdict.FAIL]
    assert "expect one GPU fewer here" in four[1].advice


def test_d13_a_vgpu_in_a_guest_has_no_link_to_be_judged(ask, make_params, make_document):
    unsupported = dict.fromkeys(("pcie_generation", "pcie_width"), "NVML_ERROR_NOT_SUPPORTED")
    share = gpu(0) | {"virtualization_mode": "VGPU", "errors": unsupported}
    sections = {
        "host": {"virtualization": "kvm"},
        "gpu": {"count": 1, "gpus": [share]},
        "pci": {"functions": list(functions(1, 0, None))},
        "modules": {"device_nodes": [{"path": "/dev/nvidia0"}]},
    }
    for check, params, verdict in (
        ("pcie_link", {"generation": 4, "width": 16}, Verdict.NOT_APPLICABLE),
        ("gpu_count", 1, Verdict.OK),
        ("gpu_lost", {}, Verdict.OK),
    ):
        (found,) = ask(check, make_params(check, params), make_document(sections))
        assert (check, found.verdict) == (check, verdict)
