"""`nodevet gate --install`: print the unit of the gate at boot, and say how to install it."""

import os
from pathlib import Path

import click
from click.core import ParameterSource

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.base.trust import distrust, shared_folder
from nodevet.cli.speech import needs_output, say, tell
from nodevet.model import Severity
from nodevet.vet.gate_unit import NAME, VERDICT, GateUnit, never_true
from nodevet.vet.terminal.program import own_program
from nodevet.vet.use.context import open_context

TAKES = ("install", "targets", "names", "wait", "settle", "fail_on", "verdict_file")
FILE = f"/etc/systemd/system/{NAME}.service"


def print_gate_unit(context: click.Context) -> None:
    """Print the unit for these options of `nodevet gate`. Raises UserError for options that it
    cannot hold, for a baseline that the gate would refuse at boot, and for files that other users
    may change."""
    unit = _unit(context)
    for path in (unit.program[0], *filter(os.path.isabs, unit.baselines)):
        if why := distrust(Path(path), must_exist=True):
            raise UserError(f"--install: {why}, and root would use {path} at every boot")
    judged = open_context(Project(folder=Path("/")), unit.baselines)  # where the unit runs
    if reasons := "\n".join(never_true(judged.baselines, Severity(unit.fail_on))):
        raise UserError(
            f"--install: no node would pass at boot; take this out of the baseline:\n{reasons}"
        )
    needs_output()
    if not tell(unit.text(), nl=False):
        raise UserError("--install: the unit cannot be written to standard output")
    say(f"write the unit to {FILE}, then run:")
    say(f"systemctl daemon-reload && systemctl enable {NAME}.service")
    if os.geteuid() != 0:
        say("you are not root, and at boot root may refuse your files: print the unit as root")


def _unit(context: click.Context) -> GateUnit:
    _refuse_others(context)
    values = context.params
    if values["targets"] not in ((), ("@local",)):
        raise UserError("--install: the unit vets the node that it runs on: name no other host")
    if not values["names"]:
        raise UserError("--install needs -b: a project's baselines are not found at boot")
    if values["wait"] <= values["settle"]:
        raise UserError("--install: give --wait longer than --settle, or no node passes at boot")
    unit = GateUnit(
        program=own_program(),
        baselines=tuple(map(_baseline, values["names"])),
        wait=values["wait"],
        settle=values["settle"],
        fail_on=values["fail_on"],
        verdict=str(_verdict(values["verdict_file"])),
    )
    for word in unit.command:
        if not word.isprintable():
            raise UserError(f"--install: {word!r} has characters that a unit cannot hold")
    return unit


def _refuse_others(context: click.Context) -> None:
    given = [
        param.opts[-1]
        for param in context.command.params
        if param.name not in TAKES
        and context.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
    ]
    if given:
        raise UserError(
            f"--install does not take {', '.join(given)}; it takes -b, --wait, --settle, "
            "--fail-on and --verdict"
        )


def _baseline(name: str) -> str:
    """The path of a file, absolute; the name of a shipped baseline as it is."""
    is_path = "/" in name or name.endswith((".yaml", ".yml"))
    return str(Path(name).absolute()) if is_path else name


def _verdict(file: Path | None) -> Path:
    """Where the unit writes the verdict. Raises UserError for a folder in which other users could
    put a verdict of their own."""
    path = Path(VERDICT) if file is None else file.absolute()
    nearest = next(folder for folder in path.parents if folder.is_dir())
    if why := distrust(path) or shared_folder(nearest / path.name):
        raise UserError(f"--verdict {path}: {why}: others could write a verdict there")
    return path
