"""The JSON Schemas of what fixes write."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _plan(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.fix.model import VERSION, Plan

    about = "What fixes would change, as `nodevet plan -o` writes it"
    return of_struct("plan", about, Plan, "nodevet_plan", VERSION)


def _result(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.fixing.result import SCHEMA, Result

    about = "How a run of fixes ended: result.json of its folder"
    return of_struct("result", about, Result, "schema", SCHEMA)


def _status(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.fix.standing import STATUS_SCHEMA, StatusAnswer

    about = "The state of a run of fixes: `nodevet status --format json`"
    return of_struct("status", about, StatusAnswer, "schema", STATUS_SCHEMA)


def _fix(_: Project) -> Document:
    from nodevet.base.json_schema import with_title
    from nodevet.baseline.schema import struct_definitions
    from nodevet.fixing.command_fix import CommandFixFile

    about = "A fix of a site that is a command and its inverse: docs/fixes.md"
    definitions = struct_definitions(CommandFixFile, "")
    return with_title("fix", about, {"$ref": "#/$defs/CommandFixFile"}, definitions)


SCHEMAS: Mapping[str, SchemaKind] = {
    "fix": SchemaKind("a fix of a site, as YAML: fixes/CHECK.yaml", _fix),
    "plan": SchemaKind("what fixes would change: nodevet plan -o", _plan, ("plan",)),
    "result": SchemaKind(
        "how a run of fixes ended: result.json of its folder", _result, ("apply", "rollback")
    ),
    "status": SchemaKind(
        "the state of a run of fixes: nodevet status --format json", _status, ("status",)
    ),
}
