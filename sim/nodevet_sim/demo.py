"""`make demo`: a fleet of simulated nodes, healthy and broken, vetted over SSH, and the report."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from nodevet_sim.nspawn.needs import NeedError, check
from nodevet_sim.sshd import make_key

FLEET = f"demo{os.getpid()}"
FOLDER = Path("demo")
BASELINE = """\
nodevet: 1
title: H100 training nodes of this site
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}}
expect:
  driver_version: ">=570,<600"
severity: {cpu_governor: warning}
fix: [power_limit, cpu_governor]
waivers:
  - check: pcie_link
    hosts: gpu003
    subject: GPU 4
    accepts: x8
    owner: ops-hw
    reason: riser on order
    until: 2099-12-31
"""


def main() -> int:
    """Vet the fleet; returns 0 if the run went as expected. Raises NeedError."""
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
            *check_of(inventory, "report.html", "run.json"), "--save", str(FOLDER / "evidence")
        )
        fixed = code == 1 and fix(inventory)
    finally:
        nodevet("sim", "down", FLEET)
    if not fixed:
        print(f"\nthe demo did not go as expected: `check` exited with {code}, expected 1")
        return 1
    print(
        f"\nexit code {code}: some nodes differ from their baseline, as intended here."
        "\nThe nodes are down again. Their evidence, the reports and the fix are kept:"
        f"\n  {FOLDER.resolve() / 'report.html'}, and after the fixes report-after.html"
    )
    for command, does in last_words():
        print(f"  {command}\n      {does}")
    return 0


def last_words() -> list[tuple[str, str]]:
    """Commands that work once the demo is over, and what they do."""
    judge = f"{program()} check --evidence {FOLDER}/evidence --project {FOLDER}/project"
    return [
        (f"{judge} --format diff", "judges the saved evidence again, without the nodes"),
        (f"{program()} report {FOLDER}/fixed", "shows what was fixed, and how"),
        (f"{program()} sim up demo", "boots the nodes again, to try things on; see docs/drift.md"),
    ]


def check_of(inventory: Path, html: str, json: str) -> list[str]:
    """Vet the fleet, with these reports."""
    return [
        "check",
        *("-i", str(inventory), "--project", str(FOLDER / "project"), "--deadline", "60"),
        *("--format", "table", "--format", f"html:{FOLDER / html}"),
        *("--format", f"json:{FOLDER / json}"),
    ]


def fix(inventory: Path) -> bool:
    """Plan what can be fixed, approve it, apply it, and vet again; whether all went well."""
    project, plan = FOLDER / "project", str(FOLDER / "plan.json")
    key = make_key(FOLDER / "id_reviewer")
    signer = f"reviewer@demo {' '.join(key.public.split()[:2])}\n"
    (project / "allowed_signers").write_text(signer, encoding="ascii")
    where = ("-i", str(inventory), "--project", str(project), "--deadline", "60")
    planned = nodevet("plan", *where, "--author", "you@demo", "-o", plan)
    approved = nodevet(
        *("approve", plan, "--folded", "--key", str(key.path), "--yes", "--project", str(project))
    )
    applied = nodevet("apply", plan, *where, "--run", str(FOLDER / "fixed"))
    again = nodevet(*check_of(inventory, "report-after.html", "run-after.json"))
    return (planned, approved, applied, again) == (1, 0, 0, 1)


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
        sys.exit("demo: interrupted; `nodevet sim down --all` removes what is left")
