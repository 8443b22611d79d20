"""The five nights are what they say that they are, by the real judge."""

import five_nights

from nodevet.model import Status, Verdict

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)
ALL = tuple(str(index) for index in range(8))
WHEN = {  # host, check -> the nights in which it fails, and of what
    ("gpu003", "row_remapping"): {2: ("2",)},
    ("gpu007", "row_remapping"): {3: ("5",), 4: ("5",)},
    ("gpu005", "power_limit"): dict.fromkeys((3, 4, 5), ALL),
    ("gpu006", "power_limit"): dict.fromkeys((3, 4, 5), ALL),
    ("gpu009", "infiniband"): dict.fromkeys((1, 3, 5), ("mlx5_3:1",)),
    ("gpu010", "persistence_mode"): dict.fromkeys((4, 5), ALL),
    ("gpu011", "persistence_mode"): dict.fromkeys((4, 5), ALL),
    ("gpu012", "persistence_mode"): dict.fromkeys((4, 5), ALL),
    ("a100-02", "cpu_governor"): dict.fromkeys((1, 2, 3), ("0-31",)),
    ("a100-06", "transparent_hugepage"): dict.fromkeys((1, 2, 3, 4, 5), ("enabled",)),
}


def test_hosts_fail_only_the_checks_that_the_story_says() -> None:
    found: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}
    for night in five_nights.NIGHTS:
        for report, evidence in five_nights.judged_reports(night):
            vetted = report.status is Status.VETTED
            assert vetted == (evidence is not None) == ((report.host, night) != ("a100-04", 2))
            for finding in report.findings:
                if finding.verdict in TROUBLE:
                    nights = found.setdefault((report.host, finding.check), {})
                    nights[night] = (*nights.get(night, ()), finding.subject.id)
    assert found == WHEN


def test_a_night_is_generated_identically_every_time() -> None:
    first, again = (list(five_nights.visits(3, ("gpu007", "a100-06"))) for _ in range(2))
    assert first == again
