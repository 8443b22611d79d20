"""What is swapped to, and what turns it on at boot; text that is hostile is refused whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.fstab import is_on_at_boot
from nodevet.remote.probe import swaps
from nodevet.remote.probe.collectors import memory

Check = Callable[[str, dict[str, Any]], Any]
HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
ACTIVE = HEADING + (
    "/swapfile                               file\t\t8388604\t\t512\t\t-2\n"
    "/dev/sda2                               partition\t16777212\t0\t\t5\n"
)
GENERATOR = "/run/systemd/generator"


@pytest.fixture
def node(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """A tree of these files, path -> text or `-> target`; /proc/swaps has two unless given."""

    def write(files: dict[str, str]) -> str:
        for path, text in {"/proc/swaps": ACTIVE, **files}.items():
            place = tmp_path / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                place.symlink_to(text[3:])
            else:
                place.write_bytes(text.encode("utf-8", "surrogateescape"))
        return str(tmp_path.resolve())

    return write


def read(check: Check, root: str) -> Any:
    return check("memory", memory.collect(root, {}))


def test_active_swaps_are_found(node: Callable[[dict[str, str]], str], check: Check) -> None:
    found = read(check, node({}))
    assert [
        (each.name, each.kind, each.size_kb, each.used_kb, each.priority) for each in found.swaps
    ] == [
        ("/swapfile", "file", 8388604, 512, -2),
        ("/dev/sda2", "partition", 16777212, 0, 5),
    ]
    assert (found.fstab, found.swap_units, found.errors.keys() & {"fstab"}) == ((), (), set())


def test_fstab_and_units_are_not_read_without_an_active_swap(
    node: Callable[[dict[str, str]], str], check: Check
) -> None:
    found = read(check, node({"/proc/swaps": HEADING, "/etc/fstab": "/x none swap sw 0 0\n"}))
    assert (found.swaps, found.fstab, found.swap_units) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not the heading of /proc/swaps: ''"),
        ("Filename\n/x\n", "not the heading of /proc/swaps: 'Filename'"),
        (HEADING + "/x file 1 0\n", "not a row of /proc/swaps: '/x file 1 0'"),
        (HEADING + "/x file -2 a 0\n", "not a number: 'a'"),
        (HEADING + "/x file 99999999999999999999 0 0\n", "beyond 64 bits"),
        (HEADING + "/x file 1 0 0\n" * 70, "more than 64 lines in /proc/swaps"),
        (HEADING + "/x\n/y file 1 0 0\n", "not a row of /proc/swaps: '/x'"),
    ],
)
def test_an_invalid_list_of_swaps_is_unknown(
    node: Callable[[dict[str, str]], str], check: Check, text: str, told: str
) -> None:
    found = read(check, node({"/proc/swaps": text}))
    assert found.swaps is None and told in found.why("swaps")
    assert found.fstab is None and told in found.why("swap_units")


@pytest.mark.parametrize(
    ("line", "swap"),
    [
        ("/swapfile none swap sw 0 0", True),
        ("UUID=1\tnone\tswap\tdefaults", True),
        ("  /x swap swap", True),
        ("/x none swap nofail,x-systemd.after=noauto 0 0", True),
        ("#/swapfile none swap sw 0 0", False),
        (" # /swapfile none swap", False),
        ("/x none swap noauto", False),
        ("/x none swap sw,noauto,nofail 0 0", False),
        ("/swap /swap ext4 swap 0 0", False),
        ("/x none swap2 sw", False),
        ("/x none\u2028swap swap2", False),
        ("swap", False),
        ("", False),
    ],
)
def test_a_line_that_turns_swap_on(line: str, swap: bool) -> None:
    assert is_on_at_boot(line) is swap


def test_the_table_byte_by_byte(node: Callable[[dict[str, str]], str], check: Check) -> None:
    text = "# é\r\n/x none swap sw 0 0\r\n\x01\u2028end"
    root = node({"/etc/fstab": text})
    (Path(root) / "etc/fstab").chmod(0o600)
    status = (Path(root) / "etc/fstab").stat()
    (found,) = read(check, root).fstab
    assert found.text == text
    assert (found.mode, found.owner, found.group) == (0o600, status.st_uid, status.st_gid)


def test_a_table_without_swap_is_not_kept(
    node: Callable[[dict[str, str]], str], check: Check
) -> None:
    found = read(check, node({"/etc/fstab": "//x /mnt cifs password=1\n#/x none swap sw 0 0\n"}))
    assert found.fstab == ()


SWAP = "/x none swap sw 0 0\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("-> /etc/other", "/etc/fstab is a symbolic link"),
        (SWAP + "\udcff", "/etc/fstab is not UTF-8 text"),
        (SWAP + "#" * 70000, "/etc/fstab is larger than 64 KiB"),
        (SWAP + "//h/s /mnt cifs user=a,password=b 0 0\n", "a line of /etc/fstab holds a password"),
        (SWAP + "//h/s /mnt cifs PASS=b 0 0\n", "a line of /etc/fstab holds a password"),
        (SWAP + "h:/ /mnt ceph name=a,secret=b 0 0\n", "a line of /etc/fstab holds a password"),
        (SWAP + "//h/s /mnt cifs username=a,password2=b 0 0", "holds a password"),
    ],
)
def test_an_fstab_that_nodevet_cannot_safely_rewrite_is_unread(
    node: Callable[[dict[str, str]], str], check: Check, text: str, told: str
) -> None:
    found = read(check, node({"/etc/fstab": text}))
    assert found.fstab is None and told in found.why("fstab")
    assert found.swap_units == ()


def test_an_fstab_that_names_a_credentials_file_is_kept(
    node: Callable[[dict[str, str]], str], check: Check
) -> None:
    text = SWAP + "//h/s /mnt cifs credentials=/etc/cifs,bypass=1,x-systemd.requires=a 0 0\n"
    assert [table.text for table in read(check, node({"/etc/fstab": text})).fstab] == [text]


def test_the_units_that_others_want(node: Callable[[dict[str, str]], str], check: Check) -> None:
    unit = "[Swap]\nWhat={}\n"
    root = node(
        {
            f"{GENERATOR}/swapfile.swap": "[Unit]\nSourcePath=/etc/fstab\n[Swap]\nWhat=/swapfile\n",
            f"{GENERATOR}/swap.target.requires/swapfile.swap": "-> ../swapfile.swap",
            f"{GENERATOR}.late/dev-sda2.swap": unit.format("/dev/sda2"),
            f"{GENERATOR}.late/swap.target.wants/dev-sda2.swap": "-> ../dev-sda2.swap",
            "/etc/systemd/system/own.swap": unit.format("/own") + "What=/later\n",
            "/etc/systemd/system/swap.target.wants/own.swap": "-> ../own.swap",
            "/usr/lib/systemd/system/off.swap": unit.format("/off"),
            "/usr/lib/systemd/system/swap.target.wants/off.swap": "-> ../off.swap",
            "/etc/systemd/system/off.swap": "-> /dev/null",
            "/usr/lib/systemd/system/empty.swap": unit.format("/empty"),
            "/usr/lib/systemd/system/swap.target.wants/empty.swap": "-> ../empty.swap",
            "/etc/systemd/system/empty.swap": "",
            "/usr/lib/systemd/system/unwanted.swap": unit.format("/unwanted"),
            "/etc/systemd/system/swap.target.wants/gone.swap": "-> /nowhere",
            "/etc/systemd/system/swap.target.wants/a b.swap": "x",
            "/etc/systemd/system/x.target.wants/nothing.swap": "-> ../nothing.swap",
            "/etc/systemd/system/nothing.swap": "[Swap]\n",
        }
    )
    found = read(check, root).swap_units
    assert [(each.name, each.path, each.what) for each in found] == [
        ("dev-sda2.swap", f"{GENERATOR}.late/dev-sda2.swap", "/dev/sda2"),
        ("nothing.swap", "/etc/systemd/system/nothing.swap", None),
        ("own.swap", "/etc/systemd/system/own.swap", "/later"),
    ]


def test_too_many_swap_units_are_unknown(
    node: Callable[[dict[str, str]], str], check: Check
) -> None:
    folder = "/etc/systemd/system/swap.target.wants"
    found = read(check, node({f"{folder}/{number}.swap": "x" for number in range(70)}))
    assert found.swap_units is None and "more than 64 units" in found.why("swap_units")


def test_a_unit_that_cannot_be_read_is_not_left_out(
    node: Callable[[dict[str, str]], str], check: Check
) -> None:
    wanted = {"/etc/systemd/system/swap.target.wants/x.swap": "x"}
    found = read(check, node({**wanted, "/etc/systemd/system/x.swap/is": "a folder"}))
    assert found.swap_units is None and "not a regular file" in found.why("swap_units")


@given(st.text(max_size=200))
def test_any_text_of_swaps_and_fstab_is_parsed_or_refused(text: str) -> None:
    assert is_on_at_boot(text) in (True, False)
    for hostile in (text, HEADING + text):
        try:
            found = swaps.parse_swaps(hostile.strip())
        except ValueError:
            continue
        assert all(isinstance(each["size_kb"], int) for each in found)
