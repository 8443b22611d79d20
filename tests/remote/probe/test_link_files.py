"""The .link file of an interface: as udev's database names it, with its drop-ins."""

from pathlib import Path

from nodevet.remote.probe.link_files import OWN_LINK, link_file, properties

DEFAULT = "/usr/lib/systemd/network/99-default.link"
RAIL = "/etc/systemd/network/20-rail.link"


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def database(root: Path, index: int, path: str, id_path: str = "") -> None:
    write(
        root, f"/run/udev/data/n{index}", f"I:1\nE:ID_PATH={id_path}\nE:ID_NET_LINK_FILE={path}\n"
    )


def test_a_file_with_drop_ins_of_several_folders(tmp_path: Path) -> None:
    root = str(tmp_path)
    write(tmp_path, RAIL, "[Match]\nOriginalName=a\n[Link]\nRxBufferSize=512\nTxBufferSize=512\n")
    write(tmp_path, "/usr/lib/systemd/network/20-rail.link.d/10-a.conf", "[Link]\nRxBufferSize=1\n")
    write(tmp_path, "/etc/systemd/network/20-rail.link.d/10-a.conf", "[Link]\nRxBufferSize=2\n")
    write(
        tmp_path, "/etc/systemd/network/20-rail.link.d/50-nodevet.conf", "[Link]\nRxBufferSize=3\n"
    )
    database(tmp_path, 4, RAIL, "pci-0000:3b:00.0")
    write(tmp_path, "/run/udev/data/c1:3", "E:ID_NET_LINK_FILE=x\n")
    record = link_file(root, "ens1", "4", properties(root))
    assert (record["path"], record["ring_rx"], record["ring_tx"]) == (RAIL, "3", "512")
    assert record["own"] == "[Link]\nRxBufferSize=3\n"
    assert record["others"] == ["/etc/systemd/network/20-rail.link.d/10-a.conf"]
    assert (record["shared_by"], record["id_path"], record["same_id_path"]) == (
        1, "pci-0000:3b:00.0", 1)  # fmt: skip


def test_a_file_of_several_interfaces_and_nodevets_own(tmp_path: Path) -> None:
    root = str(tmp_path)
    write(tmp_path, DEFAULT, "[Match]\nOriginalName=*\n[Link]\nNamePolicy=path\n")
    own = OWN_LINK.format("ens3")
    write(tmp_path, own, "[Match]\nPath=b\n[Link]\nTxBufferSize=9\n")
    for index, path, id_path in ((1, DEFAULT, "a"), (2, DEFAULT, "a"), (3, own, "b")):
        database(tmp_path, index, path, id_path)
    shared = link_file(root, "ens1", "1", properties(root))
    assert (shared["shared_by"], shared["same_id_path"], shared["ring_rx"]) == (2, 2, "")
    mine = link_file(root, "ens3", "3", properties(root))
    assert mine["own"] == mine["text"] and mine["ring_tx"] == "9"


def test_without_udev_there_is_no_file(tmp_path: Path) -> None:
    record = link_file(str(tmp_path), "ens1", "1", properties(str(tmp_path)))
    assert (record["path"], record["shared_by"], record["own"]) == ("", 0, "")
