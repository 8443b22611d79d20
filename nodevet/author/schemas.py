"""The JSON Schemas of baselines, evidence, hosts, and what commands about them print."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


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
    from nodevet.base.json_schema import of_struct

    about = (
        "Hosts that words, inventories and verdicts select, as list hosts --format json lists them"
    )
    return of_struct("hosts", about, HostList, "schema", HOST_LIST_SCHEMA)


def _preview(_: Project) -> Document:
    """The JSON output of `nodevet preview`."""
    from nodevet.author.preview import Preview
    from nodevet.base.json_schema import of_answers

    about = "Whose verdict changes: the JSON output of nodevet preview"
    return of_answers("preview", about, {Preview: ("preview",)})


def _explained(_: Project) -> Document:
    from nodevet.author.baseline_sheet import ExplainedBaselines
    from nodevet.author.explain_sheet import CheckOnHost, ExplainedCheck
    from nodevet.author.host_sheet import HostAnswer
    from nodevet.base.json_schema import of_answers

    about = "A check, baselines or a host: the output of `nodevet explain`"
    kinds = (CheckOnHost, ExplainedCheck, ExplainedBaselines, HostAnswer)
    return of_answers("explained", about, dict.fromkeys(kinds, ("explain",)))


def _list(_: Project) -> Document:
    from nodevet.author.listed_row import ListedRow
    from nodevet.base.json_schema import of_type

    return of_type("list", "What there is: the output of `nodevet list`", tuple[ListedRow, ...])


def _problems(_: Project) -> Document:
    from nodevet.author.lint_formats import LintAnswer
    from nodevet.base.json_schema import of_type

    return of_type("problems", "Problems of files: the output of `nodevet lint`", LintAnswer)


def _versions(_: Project) -> Document:
    from nodevet.base.json_schema import of_type

    return of_type("versions", "Versions by name: the output of `nodevet version`", dict[str, str])


SCHEMAS: Mapping[str, SchemaKind] = {
    "baseline": SchemaKind("what a project's baselines may hold (the default)", _baseline),
    "evidence": SchemaKind(
        "evidence of a node: check --save, nodevet probe", _evidence, ("probe",)
    ),
    "explained": SchemaKind(
        "a check, baselines or a host: nodevet explain --format json", _explained, ("explain",)
    ),
    "hosts": SchemaKind("selected hosts and their verdicts: list hosts --format json", _hosts),
    "list": SchemaKind("the rows of nodevet list --format json", _list, ("list",)),
    "preview": SchemaKind("the output of nodevet preview", _preview, ("preview",)),
    "problems": SchemaKind("problems of files: nodevet lint --format json", _problems, ("lint",)),
    "versions": SchemaKind(
        "versions by name: nodevet version --format json", _versions, ("version",)
    ),
}
