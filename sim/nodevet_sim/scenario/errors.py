"""The problems of a scenario, and their form: where, what, what to do next."""

from collections.abc import Iterable

from nodevet.base.problems import Problem, problems_text


class ScenarioError(Exception):
    """The scenario cannot be used. `problems` holds all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return problems_text(self.problems)
