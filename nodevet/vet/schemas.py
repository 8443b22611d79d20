"""The JSON Schemas of what runs of checks write."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _run(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.model.run import RUN_SCHEMA, Run

    about = "A run of checks, as --format json writes it"
    return of_struct("run", about, Run, "schema", RUN_SCHEMA)


COMMANDS = ("check", "gate", "sweep", "report")

SCHEMAS: Mapping[str, SchemaKind] = {
    "run": SchemaKind("a run of checks: --format json", _run, COMMANDS)
}
