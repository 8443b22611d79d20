"""A GPU in MIG mode whose driver tells the counts of its MIG devices alone."""

import pytest

from nodevet.model import Verdict

NOT_SUPPORTED = "NVML_ERROR_NOT_SUPPORTED"
COUNTS = [
    f"{life}_{part}{severity}"
    for life in ("volatile", "aggregate")
    for part in ("", "sram_", "dram_", "cache_")
    for severity in ("corrected", "uncorrected")
]
UNTOLD = dict.fromkeys((*COUNTS, "sram_threshold_exceeded"), NOT_SUPPORTED)


def part(**counts):
    return {
        "ecc": {**counts, "errors": {key: why for key, why in UNTOLD.items() if key not in counts}}
    }


@pytest.fixture
def say(ask, make_params, make_document):
    def of(*parts, errors=None, params=None):
        gpu = {"index": 0, "mig_current": True, "ecc": {"errors": UNTOLD}}
        if errors is None:
            gpu["mig_devices"] = [{"index": at, **each} for at, each in enumerate(parts)]
        else:
            gpu["errors"] = {"mig_devices": errors}
        sections = {"gpu": {"count": 1, "gpus": [gpu]}}
        return ask("ecc_errors", make_params("ecc_errors", params or {}), make_document(sections))

    return of


def test_t7_uncorrected_errors_of_mig_devices_fail(say):
    found, rest = say(part(volatile_sram_uncorrected=1), part(volatile_sram_uncorrected=2))
    assert (found.verdict, found.actual) == (Verdict.FAIL, {"volatile_uncorrected": 3})
    assert rest.verdict is Verdict.NOT_APPLICABLE


def test_t7_a_mig_device_without_errors_does_not_prove_the_gpu_ok(say):
    (found,) = say(part(volatile_sram_uncorrected=0))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "the counts of its MIG devices are volatile_uncorrected 0" in found.why


def test_t7_values_that_mig_devices_lack_too_are_not_applicable(say):
    assert [each.verdict for each in say(part())] == [Verdict.NOT_APPLICABLE]
    assert [each.verdict for each in say(errors=NOT_SUPPORTED)] == [Verdict.NOT_APPLICABLE]


@pytest.mark.parametrize("errors", ["NVML_ERROR_UNKNOWN", "NVML_ERROR_NO_PERMISSION"])
def test_t7_mig_devices_that_were_not_read_are_unknown(say, errors):
    found = say(errors=errors)
    assert found[0].verdict is Verdict.UNKNOWN
    assert f"mig_devices: {errors}" in found[0].why


def test_t7_a_mig_device_without_a_handle_is_unknown(say):
    found = say({"errors": {"handle": "NVML_ERROR_UNKNOWN"}}, part(volatile_sram_uncorrected=0))
    assert Verdict.UNKNOWN in {each.verdict for each in found}


def remapping(**signs):
    errors = {sign: NOT_SUPPORTED for sign in ("failure", "pending") if sign not in signs}
    return {"remapping": {**signs, "errors": errors}}


@pytest.mark.parametrize(
    ("told", "verdict", "why"),
    [
        ({"mig_devices": [remapping()]}, "not_applicable", "MIG mode"),
        ({"errors": {"mig_devices": NOT_SUPPORTED}}, "not_applicable", "MIG mode"),
        ({"mig_devices": [remapping(), remapping(failure=True)]}, "fail", "by a MIG device"),
        ({"errors": {"mig_devices": "NVML_ERROR_UNKNOWN"}}, "unknown", "NVML_ERROR_UNKNOWN"),
        (
            {"mig_devices": [remapping(), {"errors": {"handle": "NVML_ERROR_NO_PERMISSION"}}]},
            "unknown",
            "failure: NVML_ERROR_NO_PERMISSION",
        ),
        (
            {"mig_devices": [{"remapping": {"failure": False, "errors": {"pending": "x"}}}]},
            "unknown",
            "pending: x",
        ),
    ],
)
def test_t7_row_remaps_of_mig_devices_are_judged(
    told, verdict, why, ask, make_params, make_document
):
    devices = [{"index": at, **each} for at, each in enumerate(told.get("mig_devices") or ())]
    gpu = {"index": 0, "mig_current": True, **told, "mig_devices": devices or None}
    record = {"errors": dict.fromkeys(("failure", "pending"), NOT_SUPPORTED)}
    gpu |= {"remapping": record, "retired_pages": record}
    document = make_document({"gpu": {"count": 1, "gpus": [gpu]}})
    (found,) = ask("row_remapping", make_params("row_remapping", {}), document)
    assert (found.verdict.value, why in found.why) == (verdict, True), found
