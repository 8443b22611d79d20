"""`make demo`: a small broken fleet on loopback, vetted over SSH, and the report it leaves."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nodevet.sim.fleet import Fleet, Node
from nodevet.sim.library import LibraryError
from nodevet.sim.machine import Link, Machine, hgx, workstation
from nodevet.sim.sshd import SshdError

FOLDER = Path("demo")
BASELINE = """\
nodevet: 1
title: H100 training nodes of this site
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}}
expect:
  driver_version: ">=550.90.07,<560"
severity: {cpu_governor: warning}
waivers:
  - check: pcie_link
    hosts: gpu008
    subject: GPU 2
    owner: ops-hw
    reason: riser on order
    until: 2099-12-31
"""
WORKSTATION = """\
nodevet: 1
title: Desktops of this site
extends: nvidia-rtx-4090
"""


def narrow(machine: Machine, gpu: int, width: int) -> Machine:
    """The machine with one GPU, and the port above it, on fewer lanes than both can do."""
    found = machine.gpus[gpu]
    link = Link(width=width)
    ports = (replace(found.ports[0], link=link), *found.ports[1:])
    gpus = list(machine.gpus)
    gpus[gpu] = replace(found, link=link, ports=ports)
    return replace(machine, gpus=tuple(gpus))


def nodes() -> Iterator[Node]:
    """Nine H100 nodes and a desktop: three healthy, the others each with a fault of its own."""
    profile = "h100-sxm"
    yield Node(hgx("gpu001"), profile)
    yield Node(hgx("gpu002"), profile)
    for name in ("gpu003", "gpu004"):
        slow = replace(hgx(name), governor="powersave")
        yield Node(slow, profile, {"gpu.*.power_limit_mw": 500000})
    yield Node(narrow(hgx("gpu005"), 4, 8), profile, {"gpu.4.pcie_width": 8})
    yield Node(hgx("gpu006"), profile, {"gpu.6.lost": 1})
    yield Node(hgx("gpu007", nvidia_version="535.129.03"), profile, {"gpu.*.persistence_mode": 0})
    yield Node(narrow(hgx("gpu008"), 2, 8), profile, {"gpu.2.pcie_width": 8})
    yield Node(hgx("gpu009"), profile, listens=False)
    yield Node(workstation("ws001"), "rtx-4090")


def main() -> int:
    """Vet the fleet; returns 0 where the run went as it should."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    baselines = FOLDER / "project" / "baselines"
    baselines.mkdir(parents=True)
    (baselines / "site-h100.yaml").write_text(BASELINE, encoding="utf-8")
    (baselines / "site-desktop.yaml").write_text(WORKSTATION, encoding="utf-8")
    folder = FOLDER.resolve()
    print("starting ten pretended nodes on loopback, each with an sshd of its own ...", flush=True)
    with Fleet(folder / "fleet", nodes()) as fleet:
        command = [
            "check",
            *("-i", str(fleet.inventory), "--known-hosts", str(fleet.known_hosts)),
            *("--project", str(folder / "project"), "--save", str(folder / "evidence")),
            *("--format", "table", "--format", f"html:{folder / 'report.html'}"),
            *("--format", f"json:{folder / 'run.json'}"),
        ]
        print(f"\n$ nodevet {' '.join(command)}\n".replace(f"{folder}", f"{FOLDER}"), flush=True)
        done = subprocess.run([sys.executable, "-m", "nodevet", *command], check=False)
    if done.returncode != 1:
        print(f"\nthe demo expects differences, exit code 1; it was {done.returncode}")
        return 1
    nodevet = os.path.relpath(Path(sys.executable).with_name("nodevet"))
    print(
        f"\nexit code {done.returncode}: something is wrong, as it should be here"
        f"\nreport    {folder / 'report.html'}"
        f"\nevidence  {folder / 'evidence'}; judge it again, without the nodes:"
        f"\n          {nodevet} check --evidence {FOLDER}/evidence --project {FOLDER}/project "
        "--format diff"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LibraryError, SshdError) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: stopped; nothing is left running")
