"""`nodevet schema`: the JSON Schemas of baselines, for editors, and of what nodevet writes."""

import json

import click

from nodevet.base.project import Project
from nodevet.cli.common import options
from nodevet.cli.common.command import Command

KINDS = (
    *("baseline", "workload", "run", "plan", "result", "status", "evidence", "feed"),
    *("diagnosis", "history"),
)


@click.command(
    "schema",
    cls=Command,
    group="Baselines",
    order=3,
    examples=(
        ("For the editor", "nodevet schema > nodevet.schema.json"),
        ("Of the files of --format json", "nodevet schema run"),
    ),
)
@click.argument("kind", type=click.Choice(KINDS), default="baseline", metavar="[KIND]")
@options.project
def command(kind: str, project: Project) -> None:
    """Print the JSON Schema of a kind of document.

    \b
    KIND is one of:
      baseline  what a project's baselines may hold (the default)
      workload  a job whose GPUs are to be fed: what `nodevet feed` reads
      run       a run of checks: --format json
      plan      what fixes would change: nodevet plan -o
      result    how a run of fixes ended: result.json of its folder
      status    how a run of fixes stands: nodevet status --format json
      evidence  what was read on a node: check --save, nodevet probe
      feed      whether nodes can feed their GPUs: nodevet feed --format json
      diagnosis what GPUs wait for: nodevet diagnose --format json
      history   what runs, history, diff, trend, passport, blame, backtest answer

    That of baselines knows every check of this project. Write it next to your baselines, and
    begin each with `# yaml-language-server: $schema=nodevet.schema.json`.
    """
    from nodevet.run import schema

    click.echo(json.dumps(schema.KINDS[kind](project), indent=2, ensure_ascii=False))
