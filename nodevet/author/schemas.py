"""The JSON Schemas of what people write and nodes answer."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.document.schema_kinds import Document, SchemaKind


def _baseline(project: Project) -> Document:
    """A baseline of this project: what an editor completes and checks."""
    from nodevet.baseline.schema import schema
    from nodevet.vet.use.context import open_project

    catalog, _ = open_project(project)
    return schema(catalog)


def _evidence(_: Project) -> Document:
    """What `nodevet probe` prints, or what `check --save` keeps of a host, which holds that."""
    from nodevet.author.evidence_schema import evidence_schema

    return evidence_schema()


SCHEMAS: Mapping[str, SchemaKind] = {
    "baseline": SchemaKind("what a project's baselines may hold (the default)", _baseline),
    "evidence": SchemaKind("what was read on a node: check --save, nodevet probe", _evidence),
}
