"""How touches are seen: files of a tree here; units, GPUs and packages on a simulated node."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Ask = Callable[..., Any]


def test_a_file_is_read_with_all_that_restores_it(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\0x")
    (tmp_path / "f").chmod(0o4751)
    (found,) = ask("look", "file /f", root=tmp_path)
    assert found == {
        "exists": True,
        "why": "",
        "value": {
            "content": base64.b64encode(b"\xff\0x").decode(),
            "mode": 0o4751,
            "owner": os.geteuid(),
            "group": os.getegid(),
        },
    }


def test_only_small_regular_files_are_read(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    files = [f"file /{name}" for name in ("link", "dir", "fifo", "big", "no", "a/b")]
    found = ask("look", *files, "file x", root=tmp_path)
    assert found[0]["value"] == {"target": "/etc/passwd"} and found[0]["why"] == ""
    assert [each["why"] for each in found[1:4]] == [
        "not a regular file",
        "not a regular file",
        "larger than 1 MiB",
    ]
    assert all(each["exists"] for each in found[:4])
    assert found[4] == found[5] == {"exists": False, "value": None, "why": ""}
    assert found[6]["why"] == "not an absolute path"


def test_kernel_files_are_read_without_their_last_newline(
    ask: Ask, tree: Callable[[dict[str, str]], Path]
) -> None:
    root = tree({"/sys/a": "always [madvise] never\n", "/sys/b": " 1\n\n", "/sys/d/x": ""})
    found = ask("look", *(f"kernel /sys/{name}" for name in "abcd"), root=root)
    assert [each["value"] for each in found] == ["always [madvise] never", " 1\n", None, None]
    assert [each["exists"] for each in found] == [True, True, False, False]
    assert [bool(each["why"]) for each in found] == [False, False, False, True]


def test_modules_swap_and_processes(ask: Ask, tree: Callable[[dict[str, str]], Path]) -> None:
    stat = "7 (a) b) S " + "0 " * 18 + "1250 0 0\n"
    status = "Name:\ta\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t{}\n"
    root = tree(
        {
            "/sys/module/nvidia_uvm/refcnt": "0",
            "/proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 5\n",
            "/etc/fstab": "UUID=1 none swap sw 0 0\n/dev/sda1 / ext4 x 0 1\n/s none swap noauto\n",
            "/dev/disk/by-uuid/1": "-> ../../sda2",
            "/proc/7/stat": stat,
            "/proc/7/status": status.format(0),
            "/proc/7/task/7/status": status.format(0),
            "/proc/7/task/8/status": status.format(1),
        }
    )
    found = ask(
        "look", "module nvidia-uvm", "module nouveau", "swap /dev/sda2", "swap all", "swap /no",
        "process 7", "process 8", "module ../x", "process -1", root=root,
    )  # fmt: skip
    assert [each["value"]["loaded"] for each in found[:2]] == [True, False]
    assert [each["exists"] for each in found[:2]] == [True, False]
    on = {"active": True, "fstab": ["UUID=1 none swap sw 0 0"], "priority": 5}
    assert found[2] == {"exists": True, "value": on, "why": ""}
    assert found[3]["value"]["active"] is True and found[3]["value"]["fstab"] == [
        *on["fstab"],
        "/s none swap noauto",
    ]
    off = {"active": False, "fstab": [], "priority": None}
    assert found[4] == {"exists": False, "value": off, "why": ""}
    assert found[5]["value"] == {
        "cpus": "0-3",
        "mems": "0",
        "started_s": 12.5,
        "threads": {"8": {"cpus": "0-3", "mems": "1"}},
    }
    assert found[6]["exists"] is False and found[6]["why"] == ""
    assert found[7]["why"] and found[8]["why"]


def test_settings_of_another_machine_are_not_guessed(ask: Ask, tmp_path: Path) -> None:
    found = ask("look", "unit x.service", "package bash", "gpu GPU-1:x", "wish y", root=tmp_path)
    assert all(each["why"] and each["value"] is None for each in found)


def test_a_request_that_makes_no_sense_is_refused_in_one_line(
    served: Callable[[bytes], tuple[int, bytes, bytes]],
) -> None:
    for text in (
        b"",
        b"{}",
        b"{}\n",
        b"[" * 9999 + b"\n",
        b'{"do": "__init__", "deadline": 9}\n',
        json.dumps({"do": "look", "deadline": 9, "resources": [{"kind": "file"}]}).encode() + b"\n",
        json.dumps({"do": "look", "deadline": "x"}).encode() + b"\n",
        json.dumps({"do": "look", "deadline": 9, "root": "x"}).encode() + b"\n",
    ):
        code, said, complaint = served(text)
        assert (code, said) == (2, b"")
        assert complaint.startswith(b"nodevet: the request is not valid: ")
        assert complaint.count(b"\n") == 1
