"""What the kinds of PCIe errors tell of where to look."""

import pytest


@pytest.mark.parametrize(
    ("kinds", "why", "advice"),
    [
        ({"RxErr": 98, "BadTLP": 2}, "BadTLP 2, RxErr 98", "power the node off and reseat"),
        ({"UnsupReq": 3, "RxErr": 1}, "RxErr 1, UnsupReq 3", "power the node off and reseat"),
        ({"UnsupReq": 3, "RxErr": 0}, "UnsupReq 3", "protocol errors, not signal errors"),
    ],
)
def test_advice_by_kind(kinds, why, advice, ask, make_params, make_document):
    aer = {"correctable": 100, "nonfatal": 0, "fatal": 0, "kinds": kinds}
    document = make_document(
        {
            "pci": {
                "aer_ports": ["0000:5d:00.0"],
                "functions": [{"address": "0000:5d:00.0", "upstream": [], "aer": aer}],
            },
            "kernel_log": {"complete": True, "events": []},
        }
    )
    (finding,) = ask("pcie_errors", make_params("pcie_errors", {"corrected": 99}), document)
    assert finding.why == why
    assert advice in finding.advice


def test_a_slow_link_says_how_many_errors_it_has_had(ask, make_params, make_document):
    gpu = {"index": 0, "bus_id": "0000:5d:00.0", "pcie_generation": 3, "pcie_width": 16}
    gpu |= {"pcie_generation_max": 5, "pcie_width_max": 16, "pcie_replay_counter": 7}
    function = {"address": "0000:5d:00.0", "upstream": [], "aer": {"correctable": 120}}
    document = make_document(
        {
            "host": {"virtualization": "none"},
            "gpu": {"gpus": [gpu]},
            "pci": {"functions": [function]},
        }
    )
    params = make_params("pcie_link", {"generation": 5, "width": 16})
    (finding,) = ask("pcie_link", params, document)
    assert finding.details == {
        "bus id": "0000:5d:00.0",
        "corrected AER errors": "120",
        "replays": "7",
    }


def test_d15_a_bus_without_gpus_nics_and_nvme_drives_is_unknown(ask, make_params, make_document):
    document = make_document({"pci": {"functions": []}, "host": {"virtualization": "microsoft"}})
    (finding,) = ask("pcie_errors", make_params("pcie_errors", {}), document)
    assert finding.verdict.value == "unknown"
    assert finding.why == "the PCI bus shows no NVIDIA function, NIC or NVMe drive"
