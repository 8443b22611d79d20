"""`make demo`: a fleet of simulated nodes, healthy and broken, vetted over SSH, and the report."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from nodevet.sim.nspawn.needs import NeedError, check

FLEET = "demo"
FOLDER = Path("demo")
BASELINE = """\
nodevet: 1
title: H100 training nodes of this site
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}}
expect:
  driver_version: ">=570,<600"
severity: {cpu_governor: warning}
waivers:
  - check: pcie_link
    hosts: gpu003
    subject: GPU 4
    owner: ops-hw
    reason: riser on order
    until: 2099-12-31
"""


def main() -> int:
    """Vet the fleet; returns 0 where the run went as it should. Raises NeedError."""
    check(nodes=8)
    shutil.rmtree(FOLDER, ignore_errors=True)
    baselines = FOLDER / "project" / "baselines"
    baselines.mkdir(parents=True)
    (baselines / "site-h100.yaml").write_text(BASELINE, encoding="utf-8")
    if nodevet("sim", "up", "demo", "--name", FLEET) != 0:
        return 1
    try:
        inventory = FOLDER / "inventory.yaml"
        with inventory.open("wb") as out:
            nodevet("sim", "inventory", FLEET, out=out)
        code = nodevet(
            "check",
            *("-i", str(inventory), "--project", str(FOLDER / "project")),
            *("--deadline", "40", "--save", str(FOLDER / "evidence")),
            *("--format", "table", "--format", f"html:{FOLDER / 'report.html'}"),
            *("--format", f"json:{FOLDER / 'run.json'}"),
        )
    finally:
        nodevet("sim", "down", FLEET)
    if code != 1:
        print(f"\nthe demo expects differences, exit code 1; it was {code}")
        return 1
    again = f"{program()} check --evidence {FOLDER}/evidence --project {FOLDER}/project"
    print(
        f"\nexit code {code}: something is wrong, as it should be here"
        f"\nreport    {FOLDER.resolve() / 'report.html'}"
        f"\nevidence  {FOLDER}/evidence; judge it again, without the nodes:"
        f"\n          {again} --format diff"
        f"\nthe nodes to play with: {program()} sim up demo, then {program()} sim --help"
    )
    return 0


def nodevet(*arguments: str, out: object = None) -> int:
    """Run a command as a user does, and show it; its exit code."""
    print(f"\n$ nodevet {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "nodevet", *arguments]
    return subprocess.run(command, check=False, stdout=out).returncode  # type: ignore[call-overload,no-any-return]


def program() -> str:
    """How a user calls nodevet from here."""
    return os.path.relpath(Path(sys.executable).with_name("nodevet"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NeedError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: stopped; `nodevet sim down --all` removes what is left")
