"""The message of a break-fix record."""

from nodevet.model import Finding, Verdict
from nodevet.past.breakfix import break_fix
from nodevet.past.story import HostStory, StoryEvent, StoryKind


def test_the_message_about_a_whole_machine_has_no_empty_brackets() -> None:
    fault = Finding(verdict=Verdict.FAIL, check="gpu_count", expected=8, actual=7)
    event = StoryEvent(at="2026-11-17", run="r1", kind=StoryKind.FAILS, finding=fault)
    (record,) = break_fix([HostStory(host="gpu003", events=(event,))]).records
    assert record.entries[0].message == "gpu_count: 7, expected 8"
