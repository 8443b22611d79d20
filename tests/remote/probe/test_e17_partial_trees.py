"""A tree that holds a part of a machine, as a support bundle does: what is not in it is unread."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence, decode
from nodevet.fleet.protocol import exchange, payload
from nodevet.model import Verdict

FILES = {
    "etc/hostname": "n1\n",
    "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: EPYC\n",
    "proc/sys/vm/swappiness": "60\n",
    "sys/class/net/eth0/operstate": "up\n",
}
WITHOUT = "is not in this tree, which may be a part of the machine"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def probed(root: Path, **given: Any) -> dict[str, Any]:
    wish = exchange.request(nonce="n", root=str(root), deadline=60, asked_s=None, **given)
    done = subprocess.run(
        [sys.executable, "-I", "-c", payload.BOOT],
        input=payload.payload() + wish,
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(exchange.unframe(done.stdout, "n"))
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("bundle"), FILES)


def test_e17_no_section_of_a_partial_tree_is_absent(bundle: Path) -> None:
    sections = probed(bundle)["sections"]
    asked = {
        name: each
        for name, each in sections.items()
        if each["why" if "why" in each else "status"] != NOT_ASKED
    }
    assert [name for name, each in asked.items() if each["status"] == "absent"] == []
    for name in ("nvme", "infiniband", "pci", "cpufreq", "numa", "raid", "dkms"):
        assert WITHOUT in json.dumps(sections[name]), name


def test_e17_a_file_that_a_bundle_lacks_is_unread(bundle: Path) -> None:
    sections = probed(bundle, asks={"files": [{"path": "/etc/motd"}]})["sections"]
    assert sections["dns"]["data"]["nameservers"] is None
    assert sections["dns"]["data"]["errors"]["nameservers"] == f"/etc/resolv.conf {WITHOUT}"
    assert sections["containers"]["data"]["toolkit"] is None
    assert sections["modules"]["data"]["secure_boot"] is None
    (motd,) = sections["files"]["data"]["files"]
    assert motd.get("exists") is None and WITHOUT in motd["errors"]["exists"]
    assert WITHOUT in sections["environment"]["data"]["unread"]


def verdicts(evidence: Evidence) -> Iterator[tuple[str, Verdict]]:
    catalog = Catalog()
    for name in catalog.ids:
        check = catalog.check(name)
        params = params_of(check, {})
        if params is None:
            continue  # it needs a value of the site
        for finding in check.judge(evidence, params):
            yield name, finding.verdict


def test_e17_an_empty_bundle_neither_fails_nor_passes_a_check(
    tmp_path: Path,
) -> None:
    (tmp_path / "etc").mkdir()
    document = json.dumps(probed(tmp_path)).encode()
    found = list(verdicts(decode(document)))
    assert len({name for name, _ in found}) > 30
    assert [each for each in found if each[1] in (Verdict.FAIL, Verdict.OK)] == []


@pytest.mark.parametrize("folder", ["sys/class/infiniband", "sys/class/nvme"])
def test_e17_an_empty_folder_of_a_tree_is_read_and_not_missing(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    section = probed(tmp_path)["sections"][folder.rpartition("/")[2]]
    assert section["status"] == "ok"


def test_e17_a_missing_part_of_a_whole_machine_is_absent(
    bundle: Path,
) -> None:
    sections = probed(bundle, whole_machine=True)["sections"]
    assert sections["nvme"]["status"] == "absent"
    assert sections["dns"]["data"]["nameservers"] == []


@pytest.mark.parametrize(
    ("links", "why"),
    [((), WITHOUT), (("subsystem",), "no driver is bound")],
    ids=["files alone", "files and links"],
)
def test_e17_links_missing_in_the_folder_of_a_device_are_unread(
    tmp_path: Path, links: tuple[str, ...], why: str
) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:86:00.0"
    folder.mkdir(parents=True)
    for name, text in {"class": "0x068000", "vendor": "0x10de", "device": "0x22a3"}.items():
        (folder / name).write_text(text)
    for name in links:
        (folder / name).symlink_to("../../../../bus/pci")
    (function,) = probed(tmp_path)["sections"]["pci"]["data"]["functions"]
    assert function["driver"] is None
    assert why in function["errors"]["driver"]
    assert ("physfn" in function["errors"]) is not bool(links)
