"""The JSON Schema of the answers of the history."""

from collections.abc import Mapping
from typing import Any

from nodevet.base.project import Project
from nodevet.base.schema_kinds import Document, SchemaKind


def _history(_: Project) -> Document:
    from nodevet.base.json_schema import of_answers
    from nodevet.past.backtest import Backtest
    from nodevet.past.blame import Blame
    from nodevet.past.breakfix import BreakFix
    from nodevet.past.passport import Passport
    from nodevet.past.run_diff import RunDiff
    from nodevet.past.site.sheets import SiteWritten
    from nodevet.past.story import HostStory
    from nodevet.past.trend import CheckTrend, FieldTrend
    from nodevet.past.use.export import Exported
    from nodevet.past.use.prune import PruneResult
    from nodevet.past.use.recall import RunFound, RunsFound

    about = "The history: the JSON output of the history commands"
    documents: dict[type[Any], tuple[str, ...]] = {
        RunsFound: ("runs",),
        RunFound: ("run",),
        HostStory: ("history",),
        Passport: ("passport", "history"),
        RunDiff: ("diff",),
        CheckTrend: ("trend",),
        FieldTrend: ("trend",),
        Blame: ("blame",),
        BreakFix: ("breakfix",),
        Backtest: ("backtest",),
        Exported: ("export",),
        PruneResult: ("prune",),
        SiteWritten: ("site",),
    }
    return of_answers("history", about, documents)


COMMANDS = (
    *("runs", "host", "part", "diff", "trend", "blame", "backtest", "export", "prune"),
    *("history", "breakfix", "site"),
)

SCHEMAS: Mapping[str, SchemaKind] = {
    "history": SchemaKind("the output of the history commands", _history, COMMANDS)
}
