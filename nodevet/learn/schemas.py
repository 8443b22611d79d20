"""The JSON Schema of comparisons."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _comparison(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.learn.compare import ComparisonAnswer

    about = "Hosts that differ from like hosts: the output of `nodevet compare`"
    return of_answers("comparison", about, {ComparisonAnswer: ("compare",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "comparison": SchemaKind(
        "hosts that differ from like hosts: nodevet compare --format json",
        _comparison,
        ("compare",),
    )
}
