"""Kernel parameters by name; no name leads out of /proc/sys."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.fleet.protocol.exchange import request
from nodevet.remote.probe import files, main
from nodevet.remote.probe.collectors import sysctl
from nodevet.remote.request import RequestError, checked_request, receive

Check = Callable[[str, dict[str, Any]], Any]


def test_the_parameters_that_were_asked_for(tmp_path: Path, check: Check) -> None:
    for path, text in [
        ("kernel/numa_balancing", "0\n"),
        ("net/ipv4/tcp_rmem", "4096\t131072\t16777216\n"),
        ("net/ipv4/conf/eth0.1/forwarding", "1\n"),
        ("kernel/core_pattern", "\n"),
        ("kernel/printk_devkmsg", "x" * 5000),
    ]:
        place = tmp_path / "proc/sys" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    asked = [
        "net.ipv4.tcp_rmem", "kernel.numa_balancing", "net.ipv4.conf.eth0/1.forwarding",
        "kernel.core_pattern", "kernel.printk_devkmsg", "vm.swappiness", "net.ipv4",
        "kernel.//.secret", "kernel.numa_balancing",
    ]  # fmt: skip
    found = check("sysctl", sysctl.collect(str(tmp_path.resolve()), {"asks": {"sysctl": asked}}))
    told = {each.name: each.value or each.errors.get("value") for each in found.parameters}
    assert told == {
        "kernel.//.secret": "not a valid kernel parameter name",
        "kernel.core_pattern": None,
        "kernel.numa_balancing": "0",
        "kernel.printk_devkmsg": "longer than 4096 characters",
        "net.ipv4": "not a regular file",
        "net.ipv4.conf.eth0/1.forwarding": "1",
        "net.ipv4.tcp_rmem": "4096 131072 16777216",
        "vm.swappiness": "ENOENT",
    }
    assert [each.value for each in found.parameters if each.name == "kernel.core_pattern"] == [""]


def test_nothing_is_read_that_was_not_asked_for(check: Check) -> None:
    assert check("sysctl", sysctl.collect("/", {})).parameters == ()


def test_values_of_the_running_kernel_are_read() -> None:
    (found,) = sysctl.collect("/", {"asks": {"sysctl": ["kernel.ostype"]}})["parameters"]
    assert found == {"name": "kernel.ostype", "value": "Linux", "errors": {}}


@given(st.text(alphabet="ab./-_:@+ \n\0", max_size=20))
def test_no_name_leads_elsewhere(name: str) -> None:
    path, _ = files.attempt(sysctl.path_of, name)
    parts = (path or "/proc/sys/a").split("/")
    assert parts[:3] == ["", "proc", "sys"]
    assert not {"", ".", ".."} & set(parts[3:])
    assert not {" ", "\n", "\0"} & set(path or "")


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ([], "not an object of lists"),
        ({}, ""),
        ({"sysctl": ["vm.swappiness"] * 500}, ""),
        ({"sysctl": ["vm.swappiness"] * 499, "services": ["a.service"] * 2}, "more than 500 names"),
        ("vm.swappiness", "not an object of lists"),
        ({"sysctl": "vm.swappiness"}, "not an object of lists"),
        ({"sysctl": [1]}, "not a valid name"),
        ({"sysctl": ["a." + "b" * 255]}, "not a valid name"),
    ],
)
def test_what_may_be_asked(asks: Any, why: str, tmp_path: Path) -> None:
    wish = {"do": "probe", "root": str(tmp_path), "asks": asks, "sections": ["sysctl"]}
    if why:
        with pytest.raises(RequestError, match=why):
            checked_request(wish)
    else:
        assert main.probe(checked_request(wish))["sections"]["sysctl"]["status"] == "ok"


def test_the_probe_understands_the_request_of_the_controller() -> None:
    asks = {"sysctl": ("kernel.ostype",), "services": ()}
    text = request(nonce="n", root="/", deadline=9, asked_s=None, asks=asks)
    wish = receive(io.BytesIO(text)) | {"sections": ["sysctl"]}
    section = json.loads(json.dumps(main.probe(wish)))["sections"]["sysctl"]
    assert section["data"]["parameters"][0]["value"] == "Linux"


@pytest.mark.parametrize("name", ["net.ipv4.tcp_fastopen_key", "net.ipv6.conf.eth0.stable_secret"])
def test_e02_a_secret_of_the_kernel_is_not_read(tmp_path: Path, name: str) -> None:
    place = tmp_path / "proc/sys" / name.replace(".", "/")
    place.parent.mkdir(parents=True)
    place.write_text("0123-4567\n")
    (found,) = sysctl.collect(str(tmp_path), {"asks": {"sysctl": [name]}})["parameters"]
    assert found["value"] is None
    assert found["errors"] == {"value": "not read: it may hold a secret"}
