"""What a baseline may say, and what it is told where it says something else."""

import re

import pytest
import yaml
from pydantic import ValidationError

REFUSED = [
    ("xid", {"ignore": [0]}, "greater than or equal to 1"),
    ("xid", {"ignore": ["79"]}, "valid integer"),
    ("xid", {"since": "yesterday"}, "'boot'"),
    ("disk_space", "5", "String should match pattern"),
    ("disk_space", 100, "less than 100"),
    ("disk_space", {"read_only": ["var"]}, "String should match pattern"),
    ("gpu_count", {}, "give either count or minimum"),
    ("gpu_count", {"count": 8, "minimum": 4}, "give either count or minimum"),
    ("gpu_count", -1, "greater than or equal to 0"),
    ("gpu_count", True, "valid integer"),
    ("gpu_count", "8", "valid integer"),
    ("gpu_model", "H100", "String should match pattern"),
    ("gpu_model", {"device": []}, "at least 1 item"),
    ("gpu_model", {"device": "10de:2330", "subsytem": "10de:16c1"}, "Extra inputs"),
    ("driver_version", "550", "550 is a branch, not a version: write 550.* for all of it"),
    ("driver_version", "", "no version is given"),
    ("driver_version", "latest", "'latest' is not a valid version specifier"),
    ("driver_version", ">=550.90.07;<560", "is not a valid version specifier"),
    ("driver_version", 550.10, "valid string"),
    ("pcie_link", {"generation": 5}, "Field required"),
    ("pcie_link", {"generation": 7, "width": 16}, "'max'"),
    ("pcie_link", {"generation": True, "width": 16}, "'max'"),
    ("pcie_link", {"generation": 5, "width": 12}, "'max'"),
    ("persistence_mode", "on", "valid boolean"),
    ("power_limit", 0, "greater than 0"),
    ("power_limit", float("inf"), "finite number"),
    ("power_limit", {"watts": 700, "tolerance": "1 %"}, "String should match pattern"),
    ("power_limit", {"watts": 700, "tolerance": -1}, "greater than or equal to 0"),
    ("compute_mode", "Default", "'DEFAULT'"),
    ("gpu_clocks", {}, "give at least one clock"),
    ("gpu_clocks", {"graphics": "boost"}, "'max' or 'default'"),
    ("throttle_reasons", ["idle"], "'gpu_idle'"),
    ("cpu_governor", "", "String should match pattern"),
    ("cpu_governor", "a b", "String should match pattern"),
    ("numa_locality", {"gpus": {"0-3": 0, "3-4": 1}}, "GPU 3 is in more than one list"),
    ("numa_locality", {"gpus": {"a": 0}}, "'a' is not a list of GPU indices"),
    ("numa_locality", {"gpus": {}}, "at least 1 item"),
    ("numa_locality", {"gpus": {"0": -1}}, "greater than or equal to 0"),
    ("numa_locality", "here", "'platform'"),
    ("numa_binding", False, "Input should be True"),
    ("kernel_modules", {"loaded": ["a", "b-c"], "absent": ["b_c"]}, "b_c: in loaded and in absent"),
    ("kernel_modules", {"loaded": ["nvidia.ko"]}, "String should match pattern"),
    ("ecc_errors", {"volatile_uncorrected": None, "sram_threshold": False}, "at least one count"),
    ("ecc_errors", {"volatile_uncorrected": -1}, "greater than or equal to 0"),
    ("ecc_errors", {"volatile_uncorrected": True}, "valid integer"),
    ("ecc_errors", {"sram_threshold": 0}, "valid boolean"),
    ("row_remapping", {"pending": True}, "Extra inputs"),
    ("row_remapping", {"banks_none": -1}, "greater than or equal to 0"),
    ("clock_skew", 0, "greater than 0"),
    ("clock_skew", float("inf"), "finite number"),
    ("clock_skew", "60", "valid number"),
    ("gpu_lost", {"lost": True}, "Extra inputs"),
    ("ecc_mode", {"enabled": None}, "valid boolean"),
    ("mig_mode", 1, "valid boolean"),
    ("transparent_hugepage", {}, "give enabled or defrag"),
    ("transparent_hugepage", "on", "'madvise'"),
    ("transparent_hugepage", {"enabled": "defer"}, "'madvise'"),
    ("transparent_hugepage", {"enabled": []}, "at least 1 item"),
    ("swap", "4G", "'none'"),
    ("swap", -1, "greater than or equal to 0"),
    ("swap", {}, "Field required"),
    ("sysctl", {"numa_balancing": 0}, "write it with dots: kernel.numa_balancing"),
    ("sysctl", {"kernel/numa_balancing": 0}, "is not a valid name of a kernel parameter"),
    ("sysctl", {"kernel.//.shadow": 0}, "is not a valid name of a kernel parameter"),
    ("sysctl", {"kernel.a..b": 0}, "is not a valid name of a kernel parameter"),
    ("sysctl", {"-kernel.numa_balancing": 0}, "is not a valid name of a kernel parameter"),
    ("sysctl", {"kernel.": 0}, "is not a valid name of a kernel parameter"),
    ("sysctl", {"vm.swappiness": True}, "valid integer"),
    ("sysctl", {"vm.swappiness": 1.5}, "valid integer"),
    ("sysctl", {"vm.swappiness": 1 << 64}, "less than or equal to"),
    ("sysctl", {"vm.swappiness": {}}, "give minimum, maximum or both, or one_of"),
    ("sysctl", {"vm.swappiness": {"one_of": [1], "minimum": 1}}, "give minimum, maximum or both"),
    ("sysctl", {"vm.swappiness": {"minimum": 2, "maximum": 1}}, "the minimum is above the maximum"),
    ("sysctl", {"vm.swappiness": {"max": 10}}, "Extra inputs"),
    ("sysctl", {"kernel.core_pattern": "core\nkernel.x = 1"}, "control characters"),
    ("services", {"running": ["nvidia-persistenced"]}, "is not a valid systemd unit name"),
    ("services", {"running": ["--version.service"]}, "is not a valid systemd unit name"),
    ("services", {"running": ["a/b.service"]}, "is not a valid systemd unit name"),
    ("services", {"running": ["a.service"], "stopped": ["a.service"]}, "in running and in stopped"),
    ("services", {"enabled": ["a.timer"], "disabled": ["a.timer"]}, "in enabled and in disabled"),
]


@pytest.mark.parametrize(("check", "value", "words"), REFUSED)
def test_refused(check, value, words, make_params):
    with pytest.raises(ValidationError, match=re.escape(words)):
        make_params(check, value)


def test_the_examples_of_a_page_are_accepted(check_id, catalog, make_params):
    params = catalog.check(check_id).params
    examples = re.findall(r"`([^`]+)`", params.__doc__)
    assert examples
    for example in examples:
        ((key, value),) = yaml.safe_load(example).items()
        assert key == check_id
        assert isinstance(make_params(check_id, value), params)


def test_every_want_has_a_schema_for_editors(check_id, catalog):
    schema = catalog.check(check_id).params.model_json_schema()
    others = schema["additionalProperties"]
    assert others is False or (isinstance(others, dict) and others)


def test_a_bare_field_exists(check_id, catalog):
    params = catalog.check(check_id).params
    assert params.bare is None or params.bare in params.model_fields


def test_an_index_without_quotes_in_yaml(make_params):
    params = make_params("numa_locality", {"gpus": {0: 0, "1-2": 1}})
    assert params.node_of == {0: 0, 1: 1, 2: 1}
