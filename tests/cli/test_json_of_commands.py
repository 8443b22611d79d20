"""Every command that prints data prints it as JSON, too, of a kind that has a schema."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.cli import found
from nodevet.cli.group import nodevet

NO_DATA = {
    "approve": "asks a person; the plan and who signed it are files",
    "capture": "writes a baseline, in YAML, whose schema is `baseline`",
    "completion": "prints the script of a shell",
    "k8s drained": "is a hook of apply: its exit code counts",
    "pass verify": "answers before every job by its exit code; `pass show` has the data",
    "schema": "prints JSON Schemas",
    "slurm epilog": "is a hook of Slurm: its exit code counts",
    "slurm health": "is a hook of Slurm: its exit code counts",
    "slurm hook": "is a hook of apply: its exit code counts",
    "slurm prolog": "is a hook of Slurm: its exit code counts",
}
ANOTHER_OPTION = {
    "plan": "-o FILE writes the plan as JSON",
    "probe": "prints nothing but JSON",
}
RUN = Path(__file__).parents[1] / "report/golden/hostile.json"
HOST = "<script>alert(1)</script>"
OFFLINE = (
    *(f"list {kind}" for kind in ("checks", "fixes", "formats", "sources", "sections")),
    *("list resources", "list baselines"),
    *("explain xid", "explain nvidia-l40s", "explain evidence_age"),
    *(f"explain gpu_model --host {HOST} --from RUN", f"explain {HOST} --from RUN"),
    *("lint good.yaml", "lint bad.yaml", "version"),
)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each of nodevet's own commands by its words; a command of `history` by its short name."""
    top = nodevet.make_context("nodevet", [], resilient_parsing=True)
    for name in found.modules():
        command = nodevet.get_command(top, name)
        assert command is not None
        if not isinstance(command, click.Group):
            yield name, command
        elif name != "history":
            context = click.Context(command, top, name)
            for inner in command.list_commands(context):
                member = command.get_command(context, inner)
                assert member is not None
                yield f"{name} {inner}", member


BY_NAME = dict(commands())
PRINTED_BY = {name: kind for kind, about in kinds().items() for name in about.commands}


def has_json(command: click.Command) -> bool:
    """Whether `--format` takes json."""
    (option,) = (param for param in command.params if "--format" in param.opts)
    context = click.Context(command)
    try:
        option.type_cast_value(context, ("json",) if option.multiple else "json")
    except click.UsageError:
        return False
    return True


def test_every_command_has_a_schema_or_a_reason() -> None:
    assert len(BY_NAME) > 30
    lacking = set(BY_NAME) - set(PRINTED_BY) - set(NO_DATA)
    assert not lacking, f"{lacking}: name the command in a kind of document of its schemas.py"
    assert set(BY_NAME) - set(PRINTED_BY) == set(NO_DATA)
    assert set(PRINTED_BY) - set(BY_NAME) == {"history"}  # the group, which shows a host
    assert set(NO_DATA) & set(PRINTED_BY) == set()


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - set(NO_DATA) - set(ANOTHER_OPTION)))
def test_every_command_with_a_schema_prints_json(name: str) -> None:
    assert has_json(BY_NAME[name])


def test_a_command_without_json_is_seen() -> None:
    @click.command()
    @click.option("--format", type=click.Choice(["table"]))
    def command(**_: Any) -> None: ...

    assert not has_json(command)


@pytest.mark.parametrize("line", OFFLINE)
def test_json_of_commands_that_need_no_node_matches_the_schema(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text("nodevet: 1\nextends: nvidia-l40s\n")
    Path("bad.yaml").write_text("nodevet: 1\nextends: nvidia-l40z\n")
    words = [str(RUN) if word == "RUN" else word for word in line.split()]
    done = CliRunner().invoke(nodevet, [*words, "--format", "json"])
    schema = kinds()[PRINTED_BY[words[0]]].schema(Project())
    document = json.loads(done.stdout)
    assert document
    jsonschema.Draft202012Validator(schema).validate(document)
