"""The answer of `nodevet feed` in every format that has it, and the page in a real browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_chromium, show
from msgspec.structs import replace

from nodevet.base.typed import convert
from nodevet.checking.feeding.node import FeedNode
from nodevet.checking.feeding.workload import WorkloadFile, workload_of
from nodevet.feed.answer import FeedAnswer, answer
from nodevet.feed.sheet import feed_sheet
from nodevet.sheet import FORMATS, render

HOSTILE = "<script>alert(1)</script>`|\x1b[31m\u202e&\n# x"


def rendered(form: str, found: FeedAnswer, *, width: int | None = None, plot: bool = False) -> str:
    return render(form, found, lambda: feed_sheet(found, plot=plot), width=width)


def asked(**changes: Any) -> FeedAnswer:
    """The worked example, changed; None leaves a field out."""
    fields = {
        "nodevet": 1,
        "workload": "ResNet-50",
        "batch_sizes": [32, 256, 512],
        "sample_size": "500 kB",
        "gpus": 1,
        "workers": 8,
        "step": {"fixed": "5.015 ms", "per_sample": "26.28 us"},
        "transform": {"worker_rate": "250 MB/s", "gpu_rate": "50 GB/s"},
        "storage": {"read": "20 GB/s"},
        "link": "Gen4 x16",
        **changes,
    }
    found = convert({k: v for k, v in fields.items() if v is not None}, WorkloadFile)
    return answer(workload_of(found, found.workload), {}, {})


def hostile() -> FeedAnswer:
    """Everything that a file or a node says is hostile."""
    found = asked(workload=HOSTILE, link=None, storage=None)
    (node,) = found.nodes
    told = {"cores": HOSTILE, "near_cores": HOSTILE, "link": HOSTILE}
    facts = FeedNode(gpus=8, gpu_model=HOSTILE, cores=32, threads=64, unknown=told)
    unknown = tuple(replace(each, why=HOSTILE) for each in node.unknown)
    node = replace(node, hosts=("gpu1", HOSTILE), node=facts, unknown=unknown)
    return replace(found, nodes=(node,), lost={HOSTILE: HOSTILE})


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_the_same(form: str) -> None:
    text = rendered(form, asked())
    assert "ResNet-50" in text
    if form == "json":
        (node,) = json.loads(text)["nodes"]
        assert [round(each["utilization"]["high"] * 100, 1) for each in node["batches"]] == [
            *(73.2, 18.3, 14.4),
        ]
        return
    for words in ("73.2 %", "18.3 %", "5.45×", "10.900", "56 workers", "+593 %", "then binds"):
        assert words.upper() in text.upper()


@pytest.mark.parametrize("form", FORMATS)
def test_foreign_text_is_never_markup(form: str) -> None:
    text = rendered(form, hostile())
    assert "\x1b" not in text and "\u202e" not in text
    if form == "html":
        assert "<script" not in text and "&lt;script&gt;" in text
    if form == "markdown":
        outside = re.sub(r"(`+).+?\1", "", text)
        assert "script" not in outside
        assert (
            len(
                {
                    line.count("|") - line.count("\\|")
                    for line in text.splitlines()
                    if line[:1] == "|"
                }
            )
            == 3
        )


def test_a_bound_is_never_shown_as_a_number() -> None:
    text = rendered("table", asked(storage=None))
    assert "≤ 73.2 %" in text and "≥ 1.37×" in text
    assert "transform or storage" in text
    assert "storage not known" in text and "storage.read is not given" in text
    assert "utilization, at most" in rendered("html", asked(storage=None))
    assert "utilization, at most" not in rendered("html", asked())
    nothing = rendered("table", asked(storage=None, transform=None, link=None))
    assert all(line.split()[-9:-8] != ["100.0"] for line in nothing.splitlines())
    assert "how many are needed is not known" in nothing
    assert "nothing is known to be slower than the accelerator" in nothing


def test_a_narrow_terminal_has_fewer_columns() -> None:
    wide = rendered("table", asked(), width=120).splitlines()
    narrow = rendered("table", asked(), width=72).splitlines()
    assert "LINK MS" in wide[5] and "LINK MS" not in narrow[5]
    assert max(map(len, narrow)) <= 72
    assert [line.split()[-1] for line in narrow[6:9]] == ["transform"] * 3


class Loads(HTMLParser):
    """What a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag in ("script", "img", "link", "iframe", "object", "use") else []
        self.found += [name for name, _ in attrs if name in ("src", "href", "style", "onload")]


def test_the_page_loads_nothing() -> None:
    page = rendered("html", hostile())
    loads = Loads()
    loads.feed(page)
    assert loads.found == []
    assert "default-src &#39;none&#39;" in page and "url(" not in page and "@import" not in page


def test_many_kinds_of_nodes_are_cut_and_counted() -> None:
    one = asked().nodes[0]
    nodes = tuple(replace(one, hosts=(f"gpu{number}",)) for number in range(250))
    found = replace(asked(), nodes=nodes)
    assert "50 more kinds of nodes not shown" in rendered("html", found)
    markdown = rendered("markdown", found)
    assert len(markdown) < 65_536 and "more kinds of nodes have no room here" in markdown
    assert rendered("table", found).count("ResNet") == 1


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(tmp_path: Path, scheme: str) -> None:
    page = tmp_path / "feed.html"
    page.write_text(rendered("html", hostile()), encoding="utf-8")
    with chromium(tmp_path / "profile", 900, 900) as driver:
        show(driver, page, scheme)
        fills = driver.execute_script(
            "return [...document.querySelectorAll('svg circle')].map(c => getComputedStyle(c).fill)"
        )
        assert len(fills) > 20 and len(set(fills)) == 2
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 900  # a table that is wider scrolls by itself
