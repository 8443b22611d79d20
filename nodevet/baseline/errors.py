"""What `load` raises."""

from collections.abc import Iterable

from nodevet.base.problems import Problem


class BaselineErrors(Exception):  # noqa: N818  (it carries many)
    """Everything that is wrong with the baselines that were asked for."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
