"""The JSON Schema of what BMCs report."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _bmc(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.bmc.use import BmcAnswer

    about = "What the BMCs of nodes report: the output of `nodevet bmc show`"
    return of_answers("bmc", about, {BmcAnswer: ("bmc",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "bmc": SchemaKind("what BMCs report: nodevet bmc show --format json", _bmc, ("bmc show",))
}
