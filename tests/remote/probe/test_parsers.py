"""Parsers, on what kernels print and on what they never should."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe import files
from nodevet.remote.probe.collectors import (
    cpu,
    cpufreq,
    host,
    memory,
    modules,
    numa,
    pci,
    processes,
)
from nodevet.remote.probe.cpulist import LARGEST, format_cpulist, normal, parse_cpulist

CPUS = st.sets(st.integers(0, LARGEST), max_size=200)


@given(CPUS)
def test_cpulist_round_trip(cpus: set[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == sorted(cpus)


@given(CPUS, st.randoms(use_true_random=False))
def test_cpulist_normal_form_does_not_depend_on_spelling(cpus: set[int], random: Any) -> None:
    parts = [str(cpu) for cpu in cpus]
    random.shuffle(parts)
    assert normal(",".join(parts)) == format_cpulist(cpus)


@given(st.text(max_size=30))
def test_cpulist_of_any_text_is_a_list_or_an_error(text: str) -> None:
    try:
        cpus = parse_cpulist(text)
    except ValueError:
        return
    assert cpus == sorted(set(cpus)) and all(0 <= cpu <= LARGEST for cpu in cpus)


@pytest.mark.parametrize(
    "text", ["3-1", "0-", "-1", "0,,1", "0-99999999", "8192", "a", "0x1", "1 2", "0-3:1/2", "٣"]
)
def test_an_invalid_cpulist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid cpulist"):
        parse_cpulist(text)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (files.integer, " -1\n", -1),
        (files.integer, "9223372036854775807", 2**63 - 1),
        (files.flag, "1", True),
        (pci.parse_speed, "16.0 GT/s PCIe", 16.0),
        (pci.parse_speed, "16 GT/s", 16.0),
        (pci.parse_speed, "2.5 GT/s PCIe", 2.5),
        (pci.parse_speed, "64.0 GT/s PCIe", 64.0),
        (pci.parse_width, "16", 16),
        (pci.parse_width, "1", 1),
        (pci.parse_upstream, "/sys/devices/pci0000:00/0000:00:01.0/0000:19:00.0", ["0000:00:01.0"]),
        (pci.parse_upstream, "/sys/devices/pci0000:00/0000:00:1f.0", []),
        (
            pci.parse_upstream,  # behind Intel VMD, which is no port
            "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0",
            ["10000:e0:01.0"],
        ),
        (pci.parse_aer, "RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 3\n", (3, {"RxErr": 3})),
        (pci.parse_aer, "Undefined 0\nTOTAL_ERR_FATAL 0", (0, {})),
        (memory.parse_choice, "always [madvise] never", "madvise"),
        (memory.parse_choice, "always defer [defer+madvise] madvise never", "defer+madvise"),
        (numa.parse_distances, "10 21\n", [10, 21]),
        (cpufreq.parse_cpus, "0 1 128", [0, 1, 128]),
        (host.unquote, '"a \\"b\\" \\$c"', 'a "b" $c'),
        (host.unquote, "'22.04'", "22.04"),
        (host.unquote, "ubuntu", "ubuntu"),
        (host.parse_uptime, "12.50 99.00", 12.5),
        (
            modules.parse_flavour,
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build",
            "open",
        ),
        (
            modules.parse_flavour,
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31",
            "proprietary",
        ),
        (modules.parse_modules, "nvidia 56 1 - Live 0x0\n\nvideo 2 0\n", ["nvidia", "video"]),
        (
            processes.parse_stat,
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0",
            ("a) b (c)", 123.45),
        ),
        (processes.parse_cgroup, "0::/system.slice/a.service\n", "/system.slice/a.service"),
        (processes.parse_cgroup, "4:memory:/x\n1:name=systemd:/a.slice\n0::/", "/a.slice"),
        (processes.parse_cgroup, "0::/a:b/c", "/a:b/c"),
        (processes.parse_unit, "/user.slice/user@1.service/app.slice/x.scope", "user@1.service"),
    ],
)  # fmt: skip
def test_each_parser_parses_valid_text(parse: Any, text: str, expected: Any) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (files.integer, ""),
        (files.integer, "1_000"),
        (files.integer, "٣"),
        (files.integer, "1e3"),
        (files.integer, "9223372036854775808"),
        (files.integer, "9" * 5000),
        (files.flag, "2"),
        (pci.parse_speed, "Unknown"),
        (pci.parse_speed, "Unknown speed"),
        (pci.parse_speed, "1e9 GT/s"),
        (pci.parse_width, "0"),
        (pci.parse_width, "63"),
        (pci.parse_width, "255"),
        (pci.parse_upstream, "/sys/bus/pci/devices/0000:19:00.0"),
        (pci.parse_aer, "RxErr 3\n"),
        (pci.parse_aer, "TOTAL_ERR_COR many"),
        (memory.parse_choice, "always madvise never"),
        (numa.parse_distances, ""),
        (host.parse_uptime, "inf"),
        (host.parse_uptime, "nan 1"),
        (host.parse_uptime, ""),
        (modules.parse_flavour, "550.90.07"),
        (processes.parse_stat, "7 (a"),
        (processes.parse_stat, "7 (a) S 1"),
        (processes.parse_cgroup, "4:memory:/x"),
        (processes.parse_unit, "/system.slice"),
    ],
)
def test_each_parser_refuses_invalid_text_with_a_short_reason(parse: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert len(files.reason(caught.value)) <= 200


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (
        files.integer,
        files.parse_rows,
        host.parse_os_release,
        host.parse_uptime,
        memory.parse_choice,
        modules.parse_flavour,
        numa.parse_distances,
        pci.parse_aer,
        pci.parse_speed,
        pci.parse_upstream,
        processes.parse_cgroup,
        processes.parse_stat,
        processes.parse_unit,
    ):
        _, why = files.attempt(parse, text)
        assert why != ""


def test_hex_is_as_wide_as_its_field() -> None:
    assert pci.parse_hex("0x30200", 6) == "030200"
    for text in ("0x10de0", "10de", "0x", "0xzz"):
        with pytest.raises(ValueError, match="not 4 hex digits"):
            pci.parse_hex(text, 4)


def test_packages_are_folded_to_cpulists() -> None:
    found = [(0, "0,2"), (1, "1"), (0, "0,2")]
    assert cpu.packages_of([0, 1, 2], found) == {"0": "0,2", "1": "1"}


def test_policies_fold_only_when_every_setting_and_reason_is_equal() -> None:
    policies: list[tuple[int, dict[str, Any]]] = [
        (0, {"cpus": [0, 1], "governor": "performance", "errors": {}}),
        (2, {"cpus": [2, 3], "governor": "performance", "errors": {}}),
        (4, {"cpus": [4], "governor": "powersave", "errors": {}}),
        (5, {"cpus": None, "governor": "performance", "errors": {"cpus": "EIO"}}),
    ]
    folded = cpufreq.fold(policies)
    assert [(each["policies"], each["cpus"]) for each in folded] == [
        ("0,2", "0-3"),
        ("4", "4"),
        ("5", None),
    ]
