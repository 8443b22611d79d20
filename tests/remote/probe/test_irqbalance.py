"""How irqbalance starts, on trees of files: what its package, the site and nodevet wrote."""

from pathlib import Path

import pytest

from nodevet.remote.probe.collectors import irqbalance
from nodevet.remote.probe.files import Absent

UNIT = "lib/systemd/system/irqbalance.service"
SITE = "etc/systemd/system/irqbalance.service"
PACKAGED = """\
[Service]
EnvironmentFile=-/etc/default/irqbalance
ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS
"""
OPTIONS = "etc/default/irqbalance"


def collected(root: Path, **files: str) -> dict[str, object]:
    for path, text in {UNIT: PACKAGED, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return irqbalance.collect(str(root), {})


def test_files_of_the_package_and_of_nodevet_are_not_listed_as_others(tmp_path: Path) -> None:
    own = f"{SITE}.d/90-nodevet-irq-affinity.conf"
    options = "#IRQBALANCE_ARGS=--policyscript=x\nIRQBALANCE_BANNED_CPULIST=\n"
    files = {OPTIONS: options, own: "[Service]\nExecStart=x\n"}
    assert collected(tmp_path, **files) == {
        "exec_start": "/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS",
        "others": [],
        "selinux_enforcing": False,
        "errors": {},
    }


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (OPTIONS, '\nIRQBALANCE_ARGS="--policyscript=/x"\n', 2),
        (OPTIONS, 'IRQBALANCE_ARGS="-l /x"\n', 1),
        (OPTIONS, "#\nIRQBALANCE_BANNED_CPULIST=0-3\n", 2),
        ("etc/sysconfig/irqbalance", 'IRQBALANCE_BANNED_CPUS="f"\n', 1),
        (OPTIONS, 'IRQBALANCE_ARGS="--banirq=24"\n', 1),
        (OPTIONS, "IRQBALANCE_ARGS=-i 24\n", 1),
        (SITE, PACKAGED, 3),
        (f"{SITE}.d/site.conf", "[Service]\nEnvironmentFile=/etc/site\n", 2),
        (f"{SITE}.d/site.conf", "[Service]\nExecStart=\nExecStart=/x\n", 3),
        (f"{SITE}.d/site.conf", "[Service]\nEnvironment=IRQBALANCE_ARGS=--policyscript=/x\n", 2),
    ],
)
def test_what_the_site_wrote_is_named(tmp_path: Path, path: str, text: str, line: int) -> None:
    found = collected(tmp_path, **{path: text, "sys/fs/selinux/enforce": "1"})
    assert found["others"] == [f"/{path}:{line}"] and found["selinux_enforcing"] is True


def test_irqbalance_is_absent_without_its_package(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        irqbalance.collect(str(tmp_path), {})
    assert collected(tmp_path, **{UNIT: "[Service]\n"})["exec_start"] == ""
