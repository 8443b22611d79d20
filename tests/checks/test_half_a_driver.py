"""A driver of which the kernel module is loaded, and the library is not installed."""

import pytest

from nodevet.model import Verdict

NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND: libnvidia-ml.so.1 is not installed"
OTHER_TREE = "NVML is this machine's, and /srv/tree is of another machine"
LOADED = {"loaded": ["nvidia"], "builtin": [], "nvidia_version": "550.90.07"}
NOUVEAU = {"loaded": ["nouveau"], "builtin": [], "errors": {"nvidia_version": "ENOENT"}}


@pytest.fixture
def verdict(ask, make_params, make_document):
    """The worst verdict of a check on a node without NVML."""

    def of(check, params, section, modules):
        function = {"address": "0000:19:00.0", "class_code": "030200", "vendor": "10de"}
        nodes = [{"path": "/dev/nvidia0"}]
        sections = {
            "gpu": section,
            "pci": {"functions": [function | {"revision": "a1"}]},
            "modules": modules | {"device_nodes": nodes},
        }
        found = ask(check, make_params(check, params), make_document(sections))
        return max(found, key=lambda each: each.verdict is Verdict.FAIL)

    return of


CHECKS = [("gpu_count", 1), ("driver_version", "550.*"), ("kernel_modules", {"loaded": ["nvidia"]})]


@pytest.mark.parametrize(("check", "params"), CHECKS)
def test_t6_a_loaded_module_without_its_library_fails(verdict, check, params):
    found = verdict(check, params, {"status": "absent", "why": NO_LIBRARY}, LOADED)
    assert found.verdict is Verdict.FAIL
    assert "kernel module nvidia 550.90.07 is loaded" in found.why
    assert "libnvidia-ml.so.1 is not installed" in found.why
    assert "install the library" in found.advice


@pytest.mark.parametrize(("check", "params"), [("gpu_count", 1), ("driver_version", "550.*")])
@pytest.mark.parametrize(
    ("section", "modules"),
    [
        ({"status": "absent", "why": NO_LIBRARY}, NOUVEAU),  # another driver, or none
        ({"status": "absent", "why": OTHER_TREE}, LOADED),
        ({"status": "error", "why": f"{NO_LIBRARY[:28]}: it cannot be loaded: EACCES"}, LOADED),
        ({"status": "error", "why": "NVML_ERROR_DRIVER_NOT_LOADED: not loaded"}, LOADED),
    ],
)
def test_t6_other_errors_stay_unknown(verdict, check, params, section, modules):
    assert verdict(check, params, section, modules).verdict is Verdict.UNKNOWN


def test_t6_a_version_mismatch_of_library_and_module_is_reported(verdict):
    why = "NVML_ERROR_LIB_RM_VERSION_MISMATCH: of different versions"
    found = verdict("driver_version", "550.*", {"status": "error", "why": why}, LOADED)
    assert (found.verdict, found.actual) == (
        Verdict.FAIL,
        "library and kernel module of different versions",
    )
