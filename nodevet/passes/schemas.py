"""The JSON Schema of what a pass says."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _pass(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.passes.answer import PassAnswer

    about = "What the pass of a node says: the output of `nodevet pass show`"
    return of_answers("pass", about, {PassAnswer: ("pass",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "pass": SchemaKind("what a pass says: nodevet pass show --format json", _pass, ("pass show",))
}
