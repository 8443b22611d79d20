"""Cases are data: tests/checks/<check id>/<case>.yaml holds `params`, `evidence` and `findings`.

A section of `evidence` is what the collector found, or, with `status`, the whole section;
`earlier` has those that a sample of counters read `before_s` before, `since` those of the last look
`before_s` before. A finding is compared on the
keys that it gives; a subject is its label, and of `why` and `advice` a list names parts that they
hold.
"""

from collections.abc import Callable
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from nodevet.base.last_few import LastFew
from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Recorded, open_evidence
from nodevet.model import Check, Finding

HERE = Path(__file__).parent
CATALOG = Catalog()
ALIKE = LastFew()  # documents differ in one value: the sections that they share are decoded once
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast, for a thousand cases


class Case(NamedTuple):
    check_id: str
    name: str
    params: Any
    document: dict[str, Any]
    findings: list[dict[str, Any]]

    @property
    def check(self) -> Check:
        return CATALOG.check(self.check_id)

    @property
    def ask(self) -> Callable[[dict[str, Any]], list[Finding]]:
        """What the check says of a document, with what the case expects."""
        return partial(findings_of, self.check_id, want_of(self.check_id, self.params))

    @property
    def said(self) -> list[Finding]:
        return self.ask(self.document)


def document(sections: dict[str, Any]) -> dict[str, Any]:
    """The probe's answer with these sections."""
    sections = dict(sections)
    earlier = sections.pop("earlier", None)
    since = dict(sections.pop("since", {}))
    found = {"schema": 1, "probe": "0", "sections": _whole(sections)}
    if since:
        found["since"] = {"before_s": since.pop("before_s"), "sections": _whole(since)}
    if earlier is None:
        return found
    earlier = dict(earlier)
    return {**found, "earlier": _whole(earlier, before_s=earlier.pop("before_s"))}


def _whole(sections: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {
        name: section if "status" in section else {"status": "ok", "data": section, **rest}
        for name, section in sections.items()
    }


def load(path: Path) -> Case:
    text = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    assert set(text) == {"params", "evidence", "findings"}, path
    return Case(
        path.parent.name, path.stem, text["params"], document(text["evidence"]), text["findings"]
    )


@cache
def cases_of(check_id: str) -> list[Case]:
    return [load(path) for path in sorted((HERE / check_id).glob("*.yaml"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--check", help="run the tests of this check only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "check_id" in metafunc.fixturenames:
        only = metafunc.config.getoption("--check", None)
        ids = [CATALOG.path(only).stem] if only else CATALOG.ids
        metafunc.parametrize("check_id", ids, scope="module")  # one check after the other: ANSWERS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if only := config.getoption("--check", None):
        items[:] = [item for item in items if is_of(item, only)]


def is_of(item: pytest.Item, check: str) -> bool:
    """Whether a test is about this check: one of those of each check, or of a module of its own."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return check in (params.get("check_id"), params.get("check"), item.path.stem[len("test_") :])


def want_of(check_id: str, value: Any) -> Any:
    """A CheckParams from what a baseline says, bare or not."""
    model = CATALOG.check(check_id).params
    assert model.bare or isinstance(value, dict), f"{check_id} takes no plain value"
    return params_of(model, value)


class Answers:
    """What one check said of each document: several tests change a case in the same way."""

    def __init__(self) -> None:
        self._asked: object = None
        self._known: dict[bytes, list[Finding]] = {}

    def of(self, check_id: str, params: Any, answer: dict[str, Any]) -> list[Finding]:
        if self._asked != check_id:
            self._asked, self._known = check_id, {}
        text = msgspec.json.encode(answer)
        key = blake2b(repr(params).encode() + text, digest_size=16).digest()
        if key not in self._known:
            self._known[key] = judged(check_id, params, answer, text)
        return list(self._known[key])


ANSWERS = Answers()


def findings_of(check_id: str, params: Any, answer: dict[str, Any]) -> list[Finding]:
    """What a check says of the probe's answer, by way of its JSON form."""
    return ANSWERS.of(check_id, params, answer)


def judged(check_id: str, params: Any, answer: dict[str, Any], text: bytes) -> list[Finding]:
    evidence = open_evidence(text, alike=ALIKE)
    if "since" in answer:
        then = open_evidence(msgspec.json.encode({**answer, **answer["since"]}), alike=ALIKE)
        look = Recorded(sections=then.sections, seconds=answer["since"]["before_s"])
        evidence = msgspec.structs.replace(evidence, since=look)
    return list(CATALOG.check(check_id).judge(evidence, params))


@pytest.fixture
def own_cases(check_id: str) -> list[Case]:
    """The cases of the check that the test is of."""
    return cases_of(check_id)


@pytest.fixture
def find_case() -> Callable[[str, str], Case]:
    """The case of a check, by its name."""
    return lambda check, name: next(each for each in cases_of(check) if each.name == name)


@pytest.fixture
def catalog() -> Catalog:
    return CATALOG


@pytest.fixture
def make_params() -> Callable[..., Any]:
    return want_of


@pytest.fixture
def ask() -> Callable[..., list[Finding]]:
    return findings_of


@pytest.fixture
def make_document() -> Callable[..., dict[str, Any]]:
    return document
