"""Reading hosts for what is learnt from them, with a bar on the terminal."""

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
    """The project's catalog and the nodes; what baselines ask for by name is read too: those that
    are named, else all that there are. None of their commands is run: nothing is learnt from
    one. Raises what reading hosts and baselines raises."""
    from nodevet.baseline import available
    from nodevet.vet.use import nodes
    from nodevet.vet.use.context import open_context, open_project
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options

    if evidence:
        catalog, _ = open_project(project)
        return catalog, nodes.saved(evidence, targets)
    _, folders = open_project(project)
    every = [name for name, _ in available(folders)]
    context = open_context(project, list(names) or every)
    hosts = targets.hosts()
    options = fleet_options(context=context, commands=False, engine=engine_for(hosts), **reach)
    with Bar(len(hosts), display) as bar:
        bar.start()
        return context.catalog, nodes.visited(hosts, options, bar.advance)
