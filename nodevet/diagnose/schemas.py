"""The JSON Schema of a diagnosis."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _diagnosis(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.diagnose.model import SCHEMA, Diagnosis

    about = "What GPUs wait for: the output of `nodevet diagnose`"
    return of_struct("diagnosis", about, Diagnosis, "schema", SCHEMA)


SCHEMAS: Mapping[str, SchemaKind] = {
    "diagnosis": SchemaKind(
        "what GPUs wait for: nodevet diagnose --format json", _diagnosis, ("diagnose",)
    )
}
