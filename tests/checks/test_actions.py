"""Each text of `Check.actions` is part of the advice of a failure in some case."""

from nodevet.checking.recovery import ACTIONS
from nodevet.model import Verdict


def test_some_failure_of_a_case_has_each_advice(check_id, catalog, own_cases):
    advice = [one.advice for case in own_cases for one in case.said if one.verdict is Verdict.FAIL]
    own = catalog.check(check_id).actions.keys() - ACTIONS.keys()
    unseen = [text for text in own if not any(text in each for each in advice)]
    assert not unseen, f"{check_id}: no failure of tests/checks/{check_id}/ has this advice"
