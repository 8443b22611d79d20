"""Judge saved evidence by two versions of a project's baselines."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nodevet.author.preview import Preview, preview
from nodevet.base.errors import UserError
from nodevet.base.printable import brief
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
    """The verdicts that differ between the baselines of `base` and those of `project`. If `names`
    has a path, nodevet takes that path in both folders. Raises SavedEvidenceError, UserError if
    both versions are the same files, and the errors of baselines."""
    _require_two_versions(base, project, names)
    replay = saved.read_saved(evidence, targets)

    def judged(version: Project) -> Run:
        in_version = [_name_in(version, name, project) for name in names]
        context: VetContext = open_context(version, in_version)
        context = replace(context, age=saved.limit_of(max_age))
        return vet_saved(replay.hosts, replay.visits, context, fail_on=fail_on)

    return preview(judged(base), judged(project))


def _require_two_versions(base: Project, project: Project, names: Sequence[str]) -> None:
    """Raises UserError if a comparison would judge by the same files twice."""
    if base.folder.resolve() == project.folder.resolve():
        text = f"--base {brief(str(base.folder))}: the same folder as the project"
        raise UserError(f"{text}; name one with the earlier version")
    for name in filter(_is_path, names):
        files = (Path(_name_in(version, name, project)).resolve() for version in (base, project))
        if len(set(files)) == 1:
            text = f"{brief(name)} is the same file for both versions"
            raise UserError(f"{text}; name a baseline inside the project")


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml"))


def _name_in(version: Project, name: str, project: Project) -> str:
    """The path of a baseline in the folder of one version; other names unchanged."""
    if not _is_path(name):
        return name
    path, folder = Path(name), project.folder.absolute()
    return str(version.folder / (path.relative_to(folder) if folder in path.parents else path))
