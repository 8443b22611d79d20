"""What too many hosts began to fail in one night is planned only if someone insists."""

import pytest
from answering_fleet import HOSTS, AnsweringFleet, capped, replaced

pytestmark = pytest.mark.timeout(300)
HEAD = "Fix available, many hosts at once:"


def planned(fleet: AnsweringFleet, *options: str) -> tuple[int, str, str]:
    site = ("-i", "fleet.yaml", "-b", "site.yaml", "--author", "alice", "--fix", "power_limit")
    done = fleet.run("plan", *site, *options)
    return done.returncode, " ".join(done.stdout.split()), done.stderr


def test_checks_that_many_hosts_began_to_fail_are_not_planned(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    fleet.night(dict.fromkeys(HOSTS[:5], capped))
    assert "SUSPICIOUS: 5 of 6" in fleet.run("sweep").stdout
    for form in ("fold", "diff", "full"):
        code, shown, told = planned(fleet, "--format", form, "-o", "plan.json")
        assert code == 3
        assert f"{HEAD} power_limit 40 findings gpu[001-005] not planned: 5 of 6 hosts" in shown
        assert (
            "suspect the rule, the controller or the site first; --force plans it anyway" in shown
        )
        assert "not everything could be judged or planned" in told
    assert not (fleet.folder / "plan.json").exists()
    fleet.night(dict.fromkeys(HOSTS[3:5], capped))
    fleet.run("check", "-i", "fleet.yaml", "-b", "site.yaml")
    assert "gpu[004-005] not planned: 5 of 6" in planned(fleet)[1]  # though three are well again
    assert HEAD not in planned(fleet, "--force")[1]
    assert HEAD not in planned(fleet, "--store", "none")[1]
    unrecorded = fleet.run("sweep", "--store", "none")
    assert "SUSPICIOUS" not in unrecorded.stdout
    assert "not recorded: the failure budget is not checked" in unrecorded.stderr
    fleet.settings(head="[budget]\nhosts = 6\n")
    assert HEAD not in planned(fleet)[1]


def test_failures_of_few_or_different_hosts_are_planned(fleet: AnsweringFleet) -> None:
    fleet.night(dict.fromkeys(HOSTS, capped))
    assert HEAD not in planned(fleet)[1]  # there is no store
    fleet.run("sweep")
    assert HEAD not in planned(fleet)[1]  # it is the first night
    fleet.night()
    fleet.run("sweep")

    def other(sections: dict[str, object]) -> None:
        capped(sections)
        replaced(sections)

    fleet.night({"gpu001": other, **dict.fromkeys(HOSTS[1:5], capped)})
    fleet.run("sweep")
    assert HEAD not in planned(fleet)[1]  # four, and another machine


def test_a_plan_is_made_even_if_the_store_cannot_be_read(fleet: AnsweringFleet) -> None:
    (fleet.folder / "broken.sqlite").write_text("no database")
    told = planned(fleet, "--store", "sqlite:///broken.sqlite")[2]
    assert "cannot tell which checks many hosts began to fail at once" in told
