"""A diagnosis in every format that has it, and the page in a real browser."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from browser import chromium, needs_chromium, show
from msgspec.structs import replace

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.diagnose.model import Cause, Confidence, Diagnosis
from nodevet.diagnose.saved import parse_diagnosis
from nodevet.diagnose.sheet import diagnosis_sheet, strips
from nodevet.diagnose.suspects import REASONS, rank_suspects
from nodevet.document.kinds import DocumentKind, recognize
from nodevet.sheet import ENDINGS, FORMATS, render
from nodevet.sheet.errors import ReportError
from nodevet.sheet.model import TimeBlock
from nodevet.sheet.timestrip import WIDTH
from nodevet.sheet.timestrip import strips as drawn
from tests.report import diagnoses

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def hostile(make: SimpleNamespace) -> Diagnosis:
    return diagnoses.hostile(make.nasty)


def rendered(form: str, found: Diagnosis, *, width: int | None = None, rules: bool = False) -> str:
    return render(form, found, lambda: diagnosis_sheet(found, rules=rules), width=width)


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_one_host(form: str, golden: Callable[[str, str], None]) -> None:
    golden(f"diagnosis{ENDINGS[form]}", rendered(form, diagnoses.one()))


def test_rules_are_reported_with_their_margins_on_request() -> None:
    told = rendered("table", diagnoses.one(), rules=True)
    assert "[holds by 1.2] submission-bound: one thread is hot: SM busy 20 % (at most 85)" in told
    assert "[does not hold by 0.23] GPU-bound: the GPU is busy: SM busy 20 % (at least 85)" in told
    assert "[holds by" not in rendered("table", diagnoses.one())


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_names_every_host_and_cause(form: str) -> None:
    text = rendered(form, diagnoses.fleet())
    for name in (f"gpu00{n}" for n in range(6)):
        assert name in text
    for cause in Cause:
        assert cause.value in text or cause in (Cause.MIXED, Cause.COLLECTIVE)
    assert "connection refused" in text and "the others are submission-bound" in text


def test_gpus_with_the_same_text_share_a_line() -> None:
    for form in ("table", "markdown", "html"):
        text = rendered(form, diagnoses.fleet())
        assert len(re.findall("GPUs 0-7", text)) >= 1, form


def test_json_is_read_again_and_has_a_schema() -> None:
    for made in (diagnoses.one(), diagnoses.fleet()):
        text = rendered("json", made)
        assert parse_diagnosis(text) == made
        found = jsonschema.Draft202012Validator(kinds()["diagnosis"].schema(Project())).iter_errors(
            json.loads(text)
        )
        assert [error.json_path for error in found] == []
        assert recognize(text.encode()) is DocumentKind.DIAGNOSIS


def test_json_of_another_schema_is_refused() -> None:
    text = rendered("json", diagnoses.one())
    with pytest.raises(ReportError, match="the diagnosis has schema 9, this nodevet reads 1"):
        parse_diagnosis(text.replace('"schema": 1', '"schema": 9', 1))
    with pytest.raises(ReportError, match="not a saved diagnosis"):
        parse_diagnosis("{}")


@pytest.mark.parametrize("form", FORMATS)
def test_foreign_text_is_never_markup(form: str, hostile: Diagnosis) -> None:
    text = rendered(form, hostile)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066\ufeff]", text)
    text.encode()
    if form == "html":
        assert "<script" not in text and "<img" not in text and "&lt;script&gt;" in text
    if form == "markdown":
        outside = re.sub(r"(?s)(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
        for word in ("script", "octocat", "javascript", "onerror", "DROP"):
            assert word not in outside


class Loads(HTMLParser):
    """What a page would load or run, and the ids that it gives and goes to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag in ("script", "img", "link", "iframe", "object", "use") else []
        for name, value in attrs:
            self.found += [name] if name in ("src", "style") or name.startswith("on") else []
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name == "href" else []


def test_the_page_loads_nothing(hostile: Diagnosis) -> None:
    for made in (hostile, diagnoses.fleet()):
        page = rendered("html", made)
        loads = Loads()
        loads.feed(page)
        assert loads.found == []
        assert "default-src &#39;none&#39;" in page and "url(" not in page and "@import" not in page
        assert len(set(loads.ids)) == len(loads.ids)
        assert {link.removeprefix("#") for link in loads.links} <= set(loads.ids)


def test_many_hosts_are_cut_and_counted() -> None:
    host = diagnoses.one().hosts[0]
    made = diagnoses.diagnosis(*(replace(host, host=f"gpu{n:04d}") for n in range(500)))
    page = rendered("html", made)
    assert "300 more hosts not shown" in page and "drawn of the first 64;" in page
    assert len(page) < 8 << 20
    markdown = rendered("markdown", made)
    assert len(markdown) < 65_536 and "more hosts have no room here" in markdown


def test_suspects_of_the_cause_come_first_folded_and_at_most_five() -> None:
    host = diagnoses.host("gpu1", ("throttled",))
    first, *rest = rank_suspects(host.suspects, host.gpus)
    assert first.text == "power_limit of GPUs 0-3 is 500 W, expected 700 W" and first.likely
    assert [line.check for line in rest] == [
        *("nfs", "cpu_governor", "iommu", "numa_topology", "swap"),
    ]
    (line,) = rank_suspects(host.suspects[:4], host.gpus)
    assert line.fixable
    text = rendered("table", diagnoses.diagnosis(host), width=100)
    assert (text.count("suspect:"), text.count("differs:")) == (1, 4)
    assert "and 1 more and 3 differences that slow no GPU: nodevet check gpu1" in text
    assert "nodevet plan --fix power_limit gpu1" in text


def test_every_reason_is_of_a_check_and_five_causes_have_no_reason() -> None:
    checks = {path.stem for path in (ROOT / "checks").glob("*.py")}
    assert set(REASONS) <= checks
    causes = {cause for reason in REASONS.values() for cause in reason.causes}
    expected = {Cause.REQUESTS, Cause.QUOTA, Cause.MIXED, Cause.UNCLEAR}
    expected |= {Cause.COLLECTIVE}
    assert set(Cause) - causes == expected


def test_charts_share_one_axis() -> None:
    lines = diagnoses.one().hosts[0].timelines
    found = tuple(strips(lines))
    early, late = (
        drawn(TimeBlock(strips=found, seconds=20.0, later=later))[0] for later in (0.0, 10.0)
    )
    assert early.ticks == late.ticks and early.ticks[-1].label == "20 s"
    first, last = (float(strip.lines[0].points.split(",")[0]) for strip in (early, late))
    assert last == pytest.approx(first + (WIDTH - first - 16) / 2, abs=1)
    assert early.columns[0].text.startswith("0.2 s\nSM busy ")
    every = drawn(TimeBlock(strips=found, seconds=20.0))
    assert [strip.last for strip in every][-2:] == [False, True]


def test_nothing_was_watched() -> None:
    none = diagnoses.diagnosis()
    bare = replace(diagnoses.one().hosts[0], timelines=(), suspects=(), others=0, overhead=None)
    gpu = replace(bare.gpus[0], figures=(), rulings=(), jobs=(), confidence=Confidence.LOW)
    for made in (none, diagnoses.diagnosis(replace(bare, gpus=(gpu,)))):
        for form in FORMATS:
            assert rendered(form, made)
    assert "No GPU could be watched" in rendered("html", none)


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(tmp_path: Path, scheme: str, hostile: Diagnosis) -> None:
    page = tmp_path / "diagnosis.html"
    page.write_text(rendered("html", hostile), encoding="utf-8")
    with chromium(tmp_path / "profile", 900, 900) as driver:
        show(driver, page, scheme)
        strokes = driver.execute_script(
            "return [...document.querySelectorAll('section section .strip:nth-of-type(4) "
            "polyline')].map(line => getComputedStyle(line).stroke)"
        )
        assert len(set(strokes)) == 8  # each thread in a colour of its own
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 900
