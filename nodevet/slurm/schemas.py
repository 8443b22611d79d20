"""The JSON Schema of the answers of drain and resume."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _slurm(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.slurm.answer import SlurmAnswer

    about = "What `nodevet slurm drain` and `nodevet slurm resume` did"
    return of_answers("slurm", about, {SlurmAnswer: ("slurm",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "slurm": SchemaKind(
        "what slurm drain and resume did, with --format json",
        _slurm,
        ("slurm drain", "slurm resume"),
    )
}
