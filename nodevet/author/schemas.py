"""The JSON Schemas of baselines, evidence and lists of hosts."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.document.schema_kinds import Document, SchemaKind


def _baseline(project: Project) -> Document:
    """A baseline of this project, for editors."""
    from nodevet.baseline.schema import schema
    from nodevet.vet.use.context import open_project

    catalog, _ = open_project(project)
    return schema(catalog)


def _evidence(_: Project) -> Document:
    """The output of `nodevet probe`, or the file of a host from `check --save`, which has it."""
    from nodevet.author.evidence_schema import evidence_schema

    return evidence_schema()


def _hosts(_: Project) -> Document:
    from nodevet.author.host_list import HOST_LIST_SCHEMA, HostList
    from nodevet.document.json_schema import of_struct

    about = (
        "Hosts that words, inventories and verdicts select, as list hosts --format json lists them"
    )
    return of_struct("hosts", about, HostList, "schema", HOST_LIST_SCHEMA)


def _preview(_: Project) -> Document:
    """The JSON output of `nodevet preview`."""
    from nodevet.author.preview import Preview
    from nodevet.document.json_schema import of_answers

    about = "Whose verdict changes: the JSON output of nodevet preview"
    return of_answers("preview", about, {Preview: ("preview",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "baseline": SchemaKind("what a project's baselines may hold (the default)", _baseline),
    "evidence": SchemaKind("what was read on a node: check --save, nodevet probe", _evidence),
    "hosts": SchemaKind("selected hosts and their verdicts: list hosts --format json", _hosts),
    "preview": SchemaKind("the output of nodevet preview", _preview),
}
