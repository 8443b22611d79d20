"""Read the hosts to learn from, with a progress bar on the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodevet.base.project import Project
from nodevet.cli.display import Display
from nodevet.vet.terminal.progress import Bar
from nodevet.vet.use.targets import Targets

if TYPE_CHECKING:
    from nodevet.checking.catalog import Catalog
    from nodevet.vet.use.nodes import Nodes


def read_nodes(
    targets: Targets,
    evidence: Sequence[Path],
    project: Project,
    names: Sequence[str],
    reach: Mapping[str, Any],
    display: Display,
) -> "tuple[Catalog, Nodes]":
    """The catalog of the project, and the nodes with all evidence that the named baselines ask for
    (none named: all baselines). Commands of baselines are not run, since nothing is learned from
    them. Raises the errors of reading hosts and baselines."""
    from nodevet.baseline import available
    from nodevet.vet.use import nodes
    from nodevet.vet.use.context import open_context, open_project
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options

    if evidence:
        catalog, _ = open_project(project)
        return catalog, nodes.saved(evidence, targets)
    _, folders = open_project(project)
    all_names = [name for name, _ in available(folders)]
    context = open_context(project, list(names) or all_names)
    hosts = targets.hosts()
    options = fleet_options(context=context, commands=False, engine=engine_for(hosts), **reach)
    with Bar(len(hosts), display) as bar:
        bar.start()
        return context.catalog, nodes.visited(hosts, options, bar.advance)
