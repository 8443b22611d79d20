"""What a node without the programs says of its drives is what `if_possible` exempts."""

import pytest

from nodevet.checks import drive_health, nvme_health
from nodevet.remote import program
from nodevet.remote.probe.collectors import nvme


def test_the_probe_reports_a_missing_program_in_the_words_that_checks_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "FOLDERS", ())
    with pytest.raises(program.ToolError) as told:
        program.find_program("smartctl")
    assert str(told.value).startswith(drive_health.NO_PROGRAM)
    with pytest.raises(ValueError) as why:  # noqa: PT011  the message is compared below
        nvme.health("nvme0")
    assert str(why.value) == nvme_health.NO_PROGRAM
