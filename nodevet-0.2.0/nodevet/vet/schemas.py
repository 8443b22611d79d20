"""The JSON Schemas of what runs of checks write."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.document.schema_kinds import Document, SchemaKind


def _run(_: Project) -> Document:
    from nodevet import model
    from nodevet.document.json_schema import of_struct

    about = "A run of checks, as --format json writes it"
    return of_struct("run", about, model.Run, "schema", model.RUN_SCHEMA)


COMMANDS = ("check", "gate", "sweep", "report")

SCHEMAS: Mapping[str, SchemaKind] = {
    "run": SchemaKind("a run of checks: --format json", _run, COMMANDS)
}
