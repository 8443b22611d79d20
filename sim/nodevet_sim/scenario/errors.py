"""What is wrong with a scenario, and how it is said: where, what, what to do next."""

from collections.abc import Iterable

from nodevet.document.problems import Problem

SHOWN = 20  # problems printed before the rest is only counted


class ScenarioError(Exception):
    """The scenario cannot be used. `problems` holds every one that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        rows = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            rows.append(f"and {len(self.problems) - SHOWN} more problems like these")
        return "\n".join(rows)
