"""Random JSON in every position of what is kept: visits, saved runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_json import mangled

from nodevet.fleet import Visit
from nodevet.model import Finding, Host, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run
from nodevet.sheet.errors import ReportError
from nodevet.vet import formats
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.saved import SavedEvidenceError, document_of, read_visit

DEEP = "[" * 200_000
OFTEN = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def test_e04_a_kept_visit_with_anything_in_it_is_judged_or_refused(
    context: VetContext, vetted: Callable[..., Visit], tmp_path: Path
) -> None:
    path = tmp_path / "n1.json"
    kept = json.loads(msgspec.json.encode(document_of(vetted("n1"), Host(name="n1"))))

    @OFTEN
    @given(mangled(kept).map(json.dumps) | st.just(DEEP))
    def holds(text: str) -> None:
        path.write_text(text)
        try:
            visit, host = read_visit(path)
        except SavedEvidenceError:
            return
        judged = judge_visit(visit, host, context).report
        assert judged.status is visit.status or judged.why
        assert judged.host == visit.host

    holds()


RUN = Run(
    id="1",
    seconds=1.0,
    fail_on=Severity.CRITICAL,
    nodevet="0.2",
    started="2026-11-20T00:00:00+00:00",
    hosts=(
        HostReport(
            host="n1",
            status=Status.VETTED,
            findings=(
                Finding(
                    verdict=Verdict.FAIL,
                    subject=Subject(kind="gpu", id="0"),
                    expected=1,
                    actual=2,
                    check="ecc",
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_e04_a_saved_run_with_anything_in_it_is_rendered_or_refused(form: str) -> None:
    rows = [json.loads(row) for row in formats.render(form, RUN).splitlines() if form == "jsonl"]
    document = rows or json.loads(formats.render(form, RUN))

    @OFTEN
    @given(mangled(document) | st.just(DEEP))
    def holds(changed: Any) -> None:
        text = json.dumps(changed) if form == "json" else "\n".join(map(json.dumps, changed)) + "\n"
        try:
            run, _ = formats.read(text.encode())
        except ReportError:
            return
        for each in formats.formats():
            formats.render(each, run)

    holds()
