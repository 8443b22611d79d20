"""The JSON Schemas of workloads, and of answers about them."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _workload(_: Project) -> Document:
    from nodevet.base.json_schema import with_title
    from nodevet.baseline.schema import struct_definitions
    from nodevet.checking.feeding.workload import WorkloadFile

    about = "A job and the data that its GPUs need: docs/feed.md"
    definitions = struct_definitions(WorkloadFile, "")
    return with_title("workload", about, {"$ref": "#/$defs/WorkloadFile"}, definitions)


def _feed(_: Project) -> Document:
    from nodevet.base.json_schema import of_struct
    from nodevet.feed.answer import FEED_SCHEMA, FeedAnswer

    about = "Whether nodes can feed their GPUs: the output of `nodevet feed`"
    return of_struct("feed", about, FeedAnswer, "schema", FEED_SCHEMA)


SCHEMAS: Mapping[str, SchemaKind] = {
    "workload": SchemaKind(
        "a job and the data that its GPUs need: what `nodevet feed` reads", _workload
    ),
    "feed": SchemaKind(
        "whether nodes can feed their GPUs: nodevet feed --format json", _feed, ("feed",)
    ),
}
