"""The folder of a run."""

from pathlib import Path

import pytest

from nodevet.remedy.journal import Journal, Run
from nodevet.remedy.runs import RunError, RunFolder


def test_a_run_that_was_killed_before_it_began_says_so(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with Journal.create(run.path) as journal:
        for read in (run.plan, run.reach):
            with pytest.raises(RunError, match="nothing was done on any node: apply the plan anew"):
                read()
        journal.write(Run(plan="0" * 64, path="plan.json", controller="here", pid=1))
    with pytest.raises(RunError, match="the folder of a run"):
        run.plan()


def test_a_folder_without_a_journal_is_none_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the folder of a run"):
        RunFolder(tmp_path).plan()
