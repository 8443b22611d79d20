"""The JSON Schema of the output of report and expire."""

from collections.abc import Mapping

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _k8s(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.k8s.answer import KubernetesAnswer

    about = "The conditions that `nodevet k8s report` or `nodevet k8s expire` wrote to nodes"
    return of_answers("k8s", about, {KubernetesAnswer: ("k8s",)})


SCHEMAS: Mapping[str, SchemaKind] = {
    "k8s": SchemaKind(
        "the output of k8s report and expire with --format json", _k8s, ("k8s report", "k8s expire")
    )
}
