"""The JSON Schema of what was sent."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.document.schema_kinds import Document, SchemaKind


def _sent(_: Project) -> Document:
    from nodevet.document.json_schema import of_answers
    from nodevet.otel.use import SentRun

    about = "What a collector accepted: the JSON output of nodevet otel"
    return of_answers("otel", about, {SentRun: ("otel",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "otel": SchemaKind("the output of nodevet otel", _sent, ("otel",))
}
