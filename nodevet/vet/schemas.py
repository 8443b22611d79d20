"""The JSON Schemas of what runs of checks write."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.document.json_schema import Document, SchemaKind, of_struct


def _run(_: Project) -> Document:
    from nodevet import model

    about = "A run of checks, as --format json writes it"
    return of_struct("run", about, model.Run, "schema", model.RUN_SCHEMA)


SCHEMAS: Mapping[str, SchemaKind] = {"run": SchemaKind("a run of checks: --format json", _run)}
