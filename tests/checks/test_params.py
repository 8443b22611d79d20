"""What a baseline may say, and what it is told where it says something else."""

import json
import re

import msgspec
import pytest
import yaml
from msgspec.json import schema_components

from nodevet.baseline import BaselineErrors, load

REFUSED = [
    ("xid", {"ignore": [0]}, "must be at least 1, not 0"),
    ("xid", {"ignore": ["79"]}, "must be a whole number"),
    ("xid", {"since": "yesterday"}, "must be boot, not"),
    ("disk_space", "5", "a percentage such as 5% or a number"),
    ("disk_space", 100, "less than 100, not 100"),
    ("disk_space", {"read_only": ["var"]}, "must be a path"),
    ("gpu_count", {}, "give either count or minimum"),
    ("gpu_count", {"count": 8, "minimum": 4}, "give either count or minimum"),
    ("gpu_count", -1, "must be at least 0, not -1"),
    ("gpu_count", True, "must be a whole number"),
    ("gpu_count", "8", "must be a whole number"),
    ("gpu_model", "H100", "must be a PCI id such as"),
    ("gpu_model", {"device": []}, "of at least 1, not"),
    (
        "gpu_model",
        {"device": "10de:2330", "subsytem": "10de:16c1"},
        "is not a known key here",
    ),
    ("driver_version", "550", "550 is a branch, not a version: write 550.* for the whole branch"),
    ("driver_version", "", "no version is given"),
    ("driver_version", "latest", "'latest' is not a valid version specifier"),
    ("driver_version", ">=550.90.07;<560", "is not a valid version specifier"),
    ("driver_version", 550.10, "must be text"),
    ("pcie_link", {"generation": 5}, "is missing"),
    ("pcie_link", {"generation": 7, "width": 16}, "must be one of 1, 2"),
    ("pcie_link", {"generation": True, "width": 16}, "must be one of 1, 2"),
    ("pcie_link", {"generation": 5, "width": 12}, "must be one of 1, 2"),
    ("persistence_mode", "on", "must be true or false"),
    ("power_limit", 0, "must be more than 0"),
    ("power_limit", {"watts": 700, "tolerance": "1 %"}, "a percentage such as 1%"),
    ("power_limit", {"watts": 700, "tolerance": -1}, "or at least 0, not -1"),
    ("compute_mode", "Default", "did you mean DEFAULT?"),
    ("gpu_clocks", {}, "give at least one clock"),
    ("gpu_clocks", {"graphics": "boost"}, "must be a whole number or one of default, max"),
    ("throttle_reasons", ["idle"], "did you mean gpu_idle?"),
    ("cpu_governor", "", "must be a governor's name"),
    ("cpu_governor", "a b", "must be a governor's name"),
    ("numa_locality", {"gpus": {"0-3": 0, "3-4": 1}}, "GPU 3 is in more than one list"),
    ("numa_locality", {"gpus": {"a": 0}}, "'a' is not a list of GPU indices"),
    ("numa_locality", {"gpus": {}}, "of at least 1, not"),
    ("numa_locality", {"gpus": {"0": -1}}, "must be at least 0, not -1"),
    ("numa_locality", "here", "must be platform or a mapping"),
    ("numa_binding", False, "must be true, not false"),
    (
        "kernel_modules",
        {"loaded": ["a", "b-c"], "absent": ["b_c"]},
        "b_c: listed in both loaded and absent",
    ),
    ("kernel_modules", {"loaded": ["nvidia.ko"]}, "must be a module's name"),
    ("ecc_errors", {"volatile_uncorrected": -1}, "must be at least 0, not -1"),
    ("ecc_errors", {"volatile_uncorrected": True}, "must be a whole number"),
    ("ecc_errors", {"sram_threshold": 0}, "must be true or false"),
    ("row_remapping", {"pending": True}, "is not a known key here"),
    ("row_remapping", {"banks_none": -1}, "must be at least 0, not -1"),
    ("clock_skew", 0, "must be more than 0"),
    ("clock_skew", "60", "must be a number"),
    ("gpu_lost", {"lost": True}, "is not a known key here"),
    ("ecc_mode", {"enabled": None}, "enabled is missing"),
    ("mig_mode", 1, "must be true or false"),
    ("transparent_hugepage", {}, "give enabled or defrag"),
    ("transparent_hugepage", "on", "always, madvise, never or a list"),
    (
        "transparent_hugepage",
        {"enabled": "defer"},
        "always, madvise, never or a list",
    ),
    ("transparent_hugepage", {"enabled": []}, "of at least 1, not"),
    ("swap", "4G", "must be none or a whole number"),
    ("swap", -1, "must be none or at least 0"),
    ("swap", {}, "is missing"),
    ("sysctl", {"numa_balancing": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"kernel/numa_balancing": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"kernel.//.shadow": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"kernel.a..b": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"-kernel.numa_balancing": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"kernel.": 0}, "must be the name of a kernel parameter with dots"),
    ("sysctl", {"vm.swappiness": True}, "must be a whole number"),
    ("sysctl", {"vm.swappiness": 1.5}, "must be a whole number"),
    ("sysctl", {"vm.swappiness": 1 << 64}, "must be a number of at most 64 bits"),
    ("sysctl", {"vm.swappiness": {}}, "give minimum, maximum or both, or one_of"),
    ("sysctl", {"vm.swappiness": {"one_of": [1], "minimum": 1}}, "give minimum, maximum or both"),
    ("sysctl", {"vm.swappiness": {"minimum": 2, "maximum": 1}}, "the minimum is above the maximum"),
    ("sysctl", {"vm.swappiness": {"max": 10}}, "is not a known key here"),
    (
        "sysctl",
        {"kernel.core_pattern": "core\nkernel.x = 1"},
        "one line of text without",
    ),
    ("services", {"running": ["nvidia-persistenced"]}, "must be a systemd unit with its suffix"),
    ("services", {"running": ["--version.service"]}, "must be a systemd unit with its suffix"),
    ("services", {"running": ["a/b.service"]}, "must be a systemd unit with its suffix"),
    (
        "services",
        {"running": ["a.service"], "stopped": ["a.service"]},
        "listed in both running and stopped",
    ),
    (
        "services",
        {"enabled": ["a.timer"], "disabled": ["a.timer"]},
        "listed in both enabled and disabled",
    ),
    ("kernel", {"minimum": 5.15}, 'write "5.15"'),
    ("os_release", {"version": 22.04}, 'write "22.04"'),
    ("mounts", {"scratch": "xfs"}, "the key must be a path that begins with /"),
    ("mounts", {"/scratch": {"typ": "xfs"}}, "did you mean type?"),
    ("hugepages", {"total": {"2MB": 5}}, "the key must be a size of pages such as 2M or 1G"),
    ("hugepages", "some", "must be none or a mapping"),
    ("nvme_health", -1, "must be at least 0, not -1"),
    ("nfs", {"paths": ["home"]}, "must be a path that begins with /"),
    (
        "kernel_cmdline",
        {"present": ["a=1"], "absent": ["a=1"]},
        "a=1: listed in both present and absent",
    ),
    ("kernel_cmdline", {"present": ["a b"]}, "must be NAME or NAME=VALUE"),
    ("memory_size", 0, "must be more than 0"),
]


@pytest.fixture
def told_of(tmp_path, catalog):
    """What is wrong with a line below `expect`."""

    def load_one(line):
        path = tmp_path / "x.yaml"
        path.write_text(f"nodevet: 1\nexpect:\n  {line}\n")
        with pytest.raises(BaselineErrors) as caught:
            load([str(path)], catalog=catalog)
        return [str(problem) for problem in caught.value.problems]

    return load_one


@pytest.mark.parametrize(("check", "value", "words"), REFUSED)
def test_invalid_params_are_refused(check, value, words, told_of):
    (told,) = told_of(f"{check}: {json.dumps(value)}")
    assert words in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("power_limit: .inf", ".inf is not a number that can be compared"),
        ("gpu_count: 8.0", "must be a whole number, not 8.0"),
        ("cpu_governor: |\n    performance\n", "must be a governor's name"),
        ("gpu_model: '10de:2330\n\n  '", "must be a PCI id"),
    ],
)
def test_values_that_the_library_accepts(line, told, told_of):
    assert any(told in each for each in told_of(line))


def test_every_mistake_is_reported_with_its_position(told_of):
    text = "services: {running: [a, b.service, c], stoped: [], enabled: 1}"
    assert [re.sub(r".*x.yaml:(\S+ \S+) .*", r"\1", each) for each in told_of(text)] == [
        "3:24: expect.services.running[0]:",
        "3:38: expect.services.running[2]:",
        "3:42: expect.services.stoped:",
        "3:63: expect.services.enabled:",
    ]


def test_the_examples_of_a_page_are_accepted(check_id, catalog, make_params):
    params = catalog.check(check_id).params
    examples = re.findall(r"`([^`]+)`", params.__doc__)
    assert examples
    for example in examples:
        ((key, value),) = yaml.safe_load(example).items()
        assert key == check_id
        assert isinstance(make_params(check_id, value), params)


def test_the_params_of_every_check_have_a_schema_for_editors(check_id, catalog):
    params = catalog.check(check_id).params
    ((_,), found) = schema_components([params])
    assert found["Params"]["additionalProperties"] is False


def test_the_bare_field_of_params_exists(check_id, catalog):
    params = catalog.check(check_id).params
    assert params.bare is None or params.bare in params.__struct_fields__


def test_params_without_anything_to_judge_are_refused(make_params):
    with pytest.raises(msgspec.ValidationError, match="at least one count"):
        make_params("ecc_errors", {"volatile_uncorrected": None, "sram_threshold": False})


def test_params_accept_an_unquoted_yaml_number_as_gpu_index(make_params):
    params = make_params("numa_locality", {"gpus": {0: 0, "1-2": 1}})
    assert params.node_of == {0: 0, 1: 1, 2: 1}
