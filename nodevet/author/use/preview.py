"""Judge saved evidence by two versions of a project's baselines."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nodevet.author.preview import Preview, preview
from nodevet.base.project import Project
from nodevet.model import Run, Severity
from nodevet.vet.use import saved
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import vet_saved


def preview_saved(
    evidence: Sequence[Path],
    names: Sequence[str],
    base: Project,
    project: Project,
    targets: Targets,
    *,
    max_age: float | None,
    fail_on: Severity,
) -> Preview:
    """What the baselines of `project` change against those of `base` for these hosts. A baseline
    that is named by a path is searched for in both folders. Raises SavedEvidenceError, UserError,
    and the errors of baselines."""
    replay = saved.read_saved(evidence, targets)

    def judged(version: Project) -> Run:
        context: VetContext = open_context(version, [_name_in(version, name) for name in names])
        context = replace(context, age=saved.limit_of(max_age))
        return vet_saved(replay.hosts, replay.visits, context, fail_on=fail_on)

    return preview(judged(base), judged(project))


def _name_in(version: Project, name: str) -> str:
    """A path of a baseline, in the folder of one version; a name as it is."""
    is_path = "/" in name or name.endswith((".yaml", ".yml"))
    return str(version.folder / name) if is_path else name
