"""The JSON Schema of the output of `nodevet otel`."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _sent(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.otel.use import SentRun

    about = "The JSON output of `nodevet otel`: how much the collector accepted"
    return of_answers("otel", about, {SentRun: ("otel",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "otel": SchemaKind("the output of nodevet otel", _sent, ("otel",))
}
