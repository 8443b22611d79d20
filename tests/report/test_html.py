"""The HTML report in a real browser: filters, links, keyboard, hostile text, 2,000 hosts."""

import base64
import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import chromium, needs_chromium
from msgspec.structs import replace
from remembered import remembered

from nodevet.fix.formats import FixRun
from nodevet.fix.formats import render as rendered
from nodevet.fixing.model import Risk
from nodevet.fixing.result import HostResult, Outcome, Ran, Result, StepResult
from nodevet.model import HostFacts, Subject, fail
from nodevet.resource import Resource, RunCommand, State, to_stored
from nodevet.sheet.text import name
from nodevet.vet import formats

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), 1440, 900) as driver:
        yield driver


def rollout() -> tuple[Result, dict[str, bytes]]:
    """Twelve hosts: most done alike, one failed, one refused; with what a file held."""
    path = "/etc/systemd/system/nodevet-power-limit.service"

    def state(kind, name, value):
        return State(resource=Resource(kind=kind, name=name), exists=True, value=value)

    def file(text):
        encoded = base64.b64encode(text.encode()).decode()
        return state("file", path, {"content": encoded, "mode": 0o644, "owner": 0, "group": 0})

    limits = [f"GPU-{index}:power_limit_mw" for index in range(8)]
    before = (file("[Unit]\nold\n"), *(state("gpu", limit, 490000) for limit in limits))
    after = (file("[Unit]\nnew\n"), *(state("gpu", limit, 700000) for limit in limits))
    before, old = to_stored(before)
    after, new = to_stored(after)
    done = StepResult(
        id="1",
        fix="power_limit",
        subjects=tuple(f"GPU {index}" for index in range(8)),
        expected=700,
        actual=490,
        unit="W",
        risk=Risk.LIVE,
        outcome=Outcome.CHANGED,
        before=before,
        after=after,
        ran=tuple(
            Ran(action=RunCommand(words=("nvidia-smi", "-i", f"GPU-{n}", "-pl", "700")), ok=True)
            for n in range(8)
        ),
        verdicts={f"GPU {index}": "ok" for index in range(8)},
    )
    refused = replace(done, outcome=Outcome.NOT_ATTEMPTED, after=(), before=(), ran=(), verdicts={})
    failed = replace(done, outcome=Outcome.FAILED, after=before, why="the driver refused")
    hosts = [
        HostResult(host=f"gpu{n:03d}", outcome=Outcome.CHANGED, canary=n == 1, steps=(done,))
        for n in range(1, 11)
    ]
    hosts += [
        HostResult(
            host="gpu011", outcome=Outcome.FAILED, why="the driver refused", steps=(failed,)
        ),
        HostResult(
            host="gpu012", outcome=Outcome.REFUSED, why="in use by python", steps=(refused,)
        ),
    ]
    result = Result(
        nodevet="0.2.0",
        plan="7f3a91c2",
        digest="d" * 64,
        author="ann",
        started="2026-07-14T02:00:05+02:00",
        seconds=61.5,
        hosts=tuple(hosts),
    )
    return result, {**old, **new}


def racks(make):
    """Eight hosts in two racks, with facts, a part of their own serial, and 32 policies alike."""
    facts = HostFacts(
        machine="Supermicro SYS-821GE",
        kernel="5.15.0-105-generic",
        driver="550.90.07",
        uptime_s=93784,
        gpus={"NVIDIA H100 80GB HBM3": 8},
        power_limits_mw={"700000": 8},
    )
    hosts = []
    for number in range(1, 9):
        host = f"gpu{number:03d}"
        found = list(make.findings(host, power_limit=490 if number == 4 else 700))
        if number == 2:
            found += [
                fail(
                    Subject(kind="cpufreq", id=str(policy)),
                    check="cpu_governor",
                    expected="performance",
                    actual="powersave",
                    origin="baselines/site.yaml:9",
                )
                for policy in range(32)
            ]
        if number == 3:
            found.append(
                fail(
                    make.gpu(5, host),
                    check="row_remapping",
                    expected=0,
                    actual=1,
                    advice="Reset the GPU (`nvidia-smi -r`), and RMA it if it stays. " * 3,
                    details={"serial": "1658390340625", "VBIOS": "96.00.99.00.01"},
                )
            )
        rack = "rack1" if number <= 4 else "rack2"
        hosts.append(replace(make.vetted(host, tuple(found)), groups=("h100", rack), facts=facts))
    return make.run_of(*hosts)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, cases, previous, fleet, fixed, make):
    folder = tmp_path_factory.mktemp("pages")
    made = {name: formats.render("html", run) for name, run in cases.items()}
    made["since"] = formats.render("html", remembered(cases["mixed"], previous))
    made["fleet"] = formats.render("html", fleet)
    made["fixes"] = rendered("html", fixed)
    result, contents = rollout()
    made["rollout"] = rendered("html", result, FixRun(contents.get, "runs/7f3a91c2-1"))
    made["racks"] = formats.render("html", racks(make))
    for page, text in made.items():
        (folder / f"{page}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def page(browser, pages):
    """Opens a page; afterwards nothing was logged and nothing was fetched but the page."""

    def open_page(which, fragment=""):
        browser.get("about:blank")
        browser.get(f"{(pages / which).as_uri()}.html{fragment}")
        return Page(browser)

    browser.get_log("browser"), browser.get_log("performance")
    yield open_page
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        event["params"]["request"]["url"].split("#")[0]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert all(re.fullmatch(r"about:blank|file://.*/\w+\.html", url) for url in asked), asked


class Page:
    def __init__(self, browser):
        self.browser = browser

    def script(self, code, *given):
        return self.browser.execute_script(f"return {code}", *given)

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def hosts(self):
        """The hosts that are shown, those that are folded among them."""
        return self.script(
            "(() => { const all = what => [...document.querySelectorAll(`#matrix tbody ${what}`)];"
            " for (let fold; (fold = all('a.fold')[0]);) fold.click();"
            " return all('a').map(link => link.textContent); })()"
        )

    def folded(self):
        """The rows as they are shown."""
        rows = "document.querySelectorAll('#matrix tbody th')"
        return self.script(f"[...{rows}].map(row => row.textContent.replace(/\\s+/g, ' ').trim())")

    def lines(self):
        rows = "document.querySelectorAll('#lines tbody tr:not([hidden])')"
        return self.script(f"[...{rows}].map(row => row.innerText)")

    def shown(self):
        return self.script("document.getElementById('shown').textContent")

    def fragment(self):
        return self.script("location.hash")

    def keys(self, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def focused(self):
        return self.script("document.activeElement.textContent || document.activeElement.id")

    def choose(self, field, value):
        from selenium.webdriver.support.select import Select

        Select(self.find(f"#{field}")).select_by_visible_text(value)


def test_totals_and_differences_come_first(page):
    here = page("mixed")
    assert here.find("h1").text == "39 of 128 hosts fail"
    chips = here.script("[...document.querySelectorAll('.chip')].map(c => c.textContent)")
    assert chips[:3] == ["128 hosts", "39 fail", "2 unknown"]
    assert len(here.lines()) == 10
    first = " ".join(here.lines()[0].split())
    assert first.startswith(
        "fail power_limit 500 W, expected 700 W Fixable now 5 hosts gpu[001-004,007] 40 GPUs"
    )
    assert "Needs a reboot: reseat the riser" in here.lines()[1]
    top = "document.querySelector('{}').getBoundingClientRect().top"
    assert here.script(f"{top.format('#lines')} < {top.format('#matrix')}")
    assert len(here.hosts()) == 128
    assert here.hosts()[0] == "gpu001"


def test_hosts_that_look_alike_are_one_row_until_it_is_opened(page):
    here = page("mixed")
    rows = here.folded()
    assert len(rows) == 11
    assert rows[0] == "5 hosts gpu[001-004,007]" and rows[-1].startswith("81 hosts gpu[005-006,")
    assert len(here.script("[...document.querySelectorAll('#matrix tbody .outcome')]")) == 11
    here.find("#matrix a.fold").click()
    assert here.folded()[:5] == ["gpu001", "gpu002", "gpu003", "gpu004", "gpu007"]
    assert here.focused() == "gpu001"
    here = page("mixed", "#host=gpu033")
    assert "gpu033" in here.folded() and "32 hosts gpu[031-062]" not in here.folded()


def test_checks_that_are_ok_everywhere_are_hidden_and_counted(page):
    here = page("racks")
    shown = "[...document.querySelectorAll('#matrix .named')].filter(e => e.offsetWidth).length"
    assert here.script(shown) == 3
    assert here.find("#fine").text == "6 checks ok on all hosts, 1 not applicable: show"
    here.find("#fine").click()
    assert here.script(shown) == 10 and here.fragment() == "#all=1"
    assert "4 checks ok wherever they were judged, 1 not" in page("mixed").find("#fine").text
    here = page("mixed", "#check=numa_locality")
    assert here.script(shown) == 9 and here.find("#fine").text.endswith("hide")


@pytest.mark.parametrize("which", ["mixed", "since", "racks"])
def test_a_phone_shows_the_first_difference_and_every_outcome(which, page, browser):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        here = page(which)
        row = "document.querySelector('#lines tbody tr').getBoundingClientRect()"
        assert here.script(f"{row}.top > 0 && {row}.bottom < innerHeight")
        here.script("(document.getElementById('matrix').scrollTo(500, 0), 1)")
        hidden = here.script(
            "(() => { const box = document.getElementById('matrix').getBoundingClientRect();"
            " const tags = [...document.querySelectorAll('#matrix tbody .outcome .tag')];"
            " return tags.filter(tag => { const r = tag.getBoundingClientRect();"
            " return !r.width || r.left < box.left || r.right > box.right; }).length; })()"
        )
        assert hidden == 0
        assert here.script("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_outcome_filters(page):
    here = page("mixed")
    here.find(".chip.unreached").click()
    assert here.hosts() == ["gpu120", "gpu121"]
    assert here.shown() == "2 of 128 hosts shown"
    assert here.fragment() == "#verdict=unreachable"
    here.find("#clear").click()
    assert len(here.hosts()) == 128
    assert here.fragment() == "#" or here.fragment() == ""


def test_check_verdict_and_severity_filter(page):
    here = page("mixed")
    here.choose("check", "pcie_link")
    here.choose("verdict", "fail")
    assert sorted(here.hosts()) == ["gpu013", "gpu019"]
    assert len(here.lines()) == 2
    here.choose("verdict", "waived")
    assert sorted(here.hosts()) == ["gpu017", "gpu018"]
    here.find("#clear").click()
    here.choose("severity", "warning")
    assert len(here.hosts()) == 32
    assert here.lines()[0].split()[:3] == ["fail", "warning", "cpu_governor"]


def test_search_by_host_value_and_uuid(page):
    here = page("mixed")
    for words, hosts in {
        "gpu01 fail": ["gpu013", "gpu019"],
        "POWERSAVE gpu044": ["gpu044"],
        "gpu-gpu077-0003": ["gpu077"],
        "refused": ["gpu120", "gpu121"],
        "no such thing": [],
    }.items():
        field = here.find("#q")
        field.clear()
        field.send_keys(words)
        assert sorted(here.hosts()) == hosts
    assert here.find("#matrix .none").is_displayed()


def test_a_line_shows_its_hosts(page):
    here = page("mixed")
    here.find("#lines a").click()
    assert here.hosts() == ["gpu001", "gpu002", "gpu003", "gpu004", "gpu007"]
    assert here.shown() == "5 of 128 hosts shown: fail power_limit 500 W, expected 700 W"


@pytest.mark.parametrize(
    ("fragment", "hosts"),
    [
        ("#check=pcie_link&verdict=fail", ["gpu019", "gpu013"]),
        ("#verdict=timed+out", ["gpu122"]),
        ("#q=gpu12&verdict=probe+failed", ["gpu123"]),
        ("#line=1", ["gpu013"]),
        ("#line=999&q=gpu128", ["gpu128"]),
    ],
)
def test_a_deep_link_restores_the_view(fragment, hosts, page):
    here = page("mixed", fragment)
    assert here.hosts() == hosts


def test_a_deep_link_to_a_host_opens_it(page):
    here = page("mixed", "#host=gpu013")
    panel = here.find("#panel").text
    assert panel.startswith("gpu013")
    assert "expected\nx16\nactual\nx8\nlimited by root port 0000:39:01.0" in panel
    assert "baselines/nvidia-h100-sxm.yaml:16" in panel
    assert "0000:59:00.0 · GPU-gpu013-0004" in panel
    assert page("mixed", "#host=nobody").find("#panel").text.endswith("This run has no such host.")


def test_back_closes_the_host_and_a_changed_address_is_followed(page):
    here = page("mixed", "#verdict=fail")
    assert here.hosts()[0] == "gpu001"
    here.find("#matrix tbody a").click()
    assert here.fragment() == "#verdict=fail&host=gpu001"
    here.browser.back()
    assert not here.find("#panel").is_displayed()
    here.script("location.hash = '#host=gpu100'")
    deadline = time.monotonic() + 120
    while "GPU is lost" not in here.find("#panel").text and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "NVML: GPU is lost" in here.find("#panel").text


def test_a_cell_leads_to_its_check(page):
    here = page("mixed")
    assert here.hosts()
    here.script("(document.getElementById('matrix').scrollTo(0, 0), 1)")
    here.find("#matrix td.fail").click()
    assert here.focused().startswith("power_limit")


def test_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    here = page("mixed")
    here.keys("/")
    assert here.script("document.activeElement.id") == "q"
    here.keys("gpu03", Keys.ARROW_DOWN)
    assert here.focused() == "9 hosts"
    here.keys(Keys.ENTER)
    assert here.focused() == "gpu031"
    here.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert here.focused() == "gpu032"
    outline = here.script("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    here.keys(Keys.ENTER)
    assert here.find("#panel h2").text == "gpu032"
    assert here.focused() == "gpu032"
    here.keys(Keys.ESCAPE)
    assert not here.find("#panel").is_displayed()
    assert here.focused() == "gpu032"
    here.keys(Keys.END)
    assert here.focused() == here.hosts()[-1] == "gpu030"
    here.keys("/", Keys.ESCAPE)
    assert here.script("document.getElementById('q').value") == ""
    assert len(here.hosts()) == 128


def test_one_row_alone_is_in_the_tab_order(page):
    here = page("mixed")
    assert here.script("document.querySelectorAll('#matrix tbody a[tabindex=\"0\"]').length") == 1


def test_the_page_can_be_read_by_a_screen_reader(page):
    here = page("mixed")
    assert here.script("document.documentElement.lang") == "en"
    assert here.find("#shown").get_attribute("aria-live") == "polite"
    row = here.find("#matrix tbody tr")
    cells = [cell.get_attribute("textContent") for cell in row.find_elements("css selector", "td")]
    assert cells[:5] == ["fail", "ok", "fail", "ok", "ok"]
    heads = here.script("[...document.querySelectorAll('#matrix .named')].map(h => h.textContent)")
    assert heads[:5] == ["pcie_link", "power_limit", "cpu_governor", "ecc_errors", "gpu_count"]
    roles = here.script(
        "[...document.querySelectorAll('#matrix [role]')].map(e => e.getAttribute('role'))"
    )
    assert {"table", "rowgroup", "row", "columnheader", "rowheader", "cell"} == set(roles)
    unnamed = here.script(
        "[...document.querySelectorAll('input, select, button')].filter("
        "e => !(e.labels && e.labels.length) && !e.textContent && !e.ariaLabel).length"
    )
    assert unnamed == 0


def test_what_is_new_is_marked_and_can_be_filtered(page):
    here = page("since")
    since = here.find("main > section").text
    assert since.startswith("Since 2026-07-13 02:00:04+02:00\nNew since last run: 73")
    assert "fixed 1 gpu060" in since
    here.find("#new").click()
    assert "gpu002" not in here.hosts()
    assert {"gpu013", "gpu124"} <= set(here.hosts())


def test_the_names_of_new_hosts_are_whole_on_a_narrow_screen(page, browser):
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        cut = page("since").script(
            "[...document.querySelectorAll('#matrix tbody th')]"
            ".map(head => [head.querySelector('a'), head.querySelector('.new')])"
            ".filter(([name, tag]) => tag).map(([name]) => name.scrollWidth > name.clientWidth)"
        )
        assert cut and not any(cut)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_text_is_text(page, make):
    here = page("hostile")
    assert here.script("document.querySelectorAll('script').length") == 2
    assert here.script("document.querySelectorAll('img, b[onclick], iframe, svg').length") == 0
    assert sorted(here.hosts()) == sorted(
        [name(n) for n in make.nasty] + [name(f"down {n}") for n in make.nasty]
    )
    for nasty in make.nasty:
        here = page("hostile", f"#host={quote(name(nasty))}")
        assert here.find("#panel h2").get_attribute("textContent") == name(nasty)
        assert here.script("document.querySelectorAll('script').length") == 2


def test_an_injected_script_would_not_run(pages, browser):
    """The policy holds even where escaping would not: it runs what has the hash, nothing else."""
    text = (pages / "healthy.html").read_text(encoding="utf-8")
    broken = pages / "broken.html"
    broken.write_text(
        text.replace(
            "<noscript>", "<script>window.hit = 1</script><img src=x onerror=hit=2><noscript>"
        ),
        encoding="utf-8",
    )
    browser.get(broken.as_uri())
    assert browser.execute_script("return window.hit") is None
    assert len(browser.execute_script("return document.getElementById('shown').textContent")) > 0
    browser.get_log("browser"), browser.get_log("performance")


def test_two_thousand_hosts(page, pages, fleet):
    assert (pages / "fleet.html").stat().st_size < 15e6
    before = time.monotonic()
    here = page("fleet")
    assert len(here.hosts()) == 2000
    assert time.monotonic() - before < 200
    here.find("#q").send_keys("gpu19")
    assert len(here.hosts()) == 100
    took = here.script(
        "(() => { const q = document.getElementById('q'); const begin = performance.now();"
        " for (const words of ['gpu1', 'gpu2', 'x8', '']) {"
        " q.value = words; q.dispatchEvent(new Event('input')); document.body.offsetHeight; }"
        " return (performance.now() - begin) / 4; })()"
    )
    assert took < 20_000
    assert len(here.hosts()) == 2000


def test_one_host_is_opened_at_once(page):
    here = page("one")
    assert here.find("#panel h2").text == "node-7.example"
    assert "expected\nmodule_20" in here.find("#panel").text


def test_an_empty_run_says_so(page):
    here = page("empty")
    assert here.find("h1").text == "No hosts: nothing was vetted"
    assert here.find("#matrix .none").text == "This run has no hosts."


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


BACKGROUND = """(e => { while (e && /^rgba.*, 0\\)$/.test(getComputedStyle(e).backgroundColor))
 e = e.parentElement; return getComputedStyle(e || document.body).backgroundColor; })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_have_contrast(scheme, page, browser):
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    here = page("mixed", "#host=gpu013")
    body = here.script("getComputedStyle(document.body).backgroundColor")
    assert (luminance(body) < 0.2) == (scheme == "dark")
    seen = here.script(
        "[...document.querySelectorAll('h1, .facts span, .chip b, .tag, .lines td, .lines a,"
        " .matrix a, .panel dd, .panel dt, .diff div, .said, .shown')].map(e => "
        f"[e.className, getComputedStyle(e).color, {BACKGROUND}(e)])"
    )
    assert len(seen) > 100
    for what, colour, background in seen:
        high, low = sorted((luminance(colour), luminance(background)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (what, colour, background)


def test_without_script_the_table_is_there(browser, pages, cases):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((pages / "mixed.html").as_uri())
        rows = browser.find_elements("css selector", "#lines tbody tr")
        told = [" ".join(row.text.split()) for row in rows]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(told) == 10
    words = "fail power_limit 500 W, expected 700 W Fixable now 5 hosts gpu[001-004,007] 40 GPUs"
    assert words in told[0]
    assert "probe failed python3: command not found gpu123" in told[8]


def test_a_page_of_hostile_fixes_shows_its_hosts_and_runs_nothing_of_them(page, fixed):
    here = page("fixes")
    shown = here.find("main").text
    assert all(name(host.host) in shown for host in fixed.hosts)
    assert here.script("document.scripts.length") == 2
    assert here.script("document.querySelectorAll('img, b[onclick], iframe, svg').length") == 0


def test_a_page_of_fixes_shows_outcomes_hosts_steps_and_files(page):
    here = page("rollout")
    assert here.find("h1").text == "1 of 12 hosts: failed and rolled back"
    rows = here.find(".rows tbody").find_elements("css selector", "tr")
    assert [row.text for row in rows] == [
        "failed and rolled back gpu011 the driver refused",
        "refused gpu012 in use by python",
        "changed gpu[001-010]",
    ]
    text = " ".join(here.find("main").text.split())
    assert "gpu[001-010] (canary: gpu001)" in text
    assert "power_limit 490 W → 700 W on GPU 0-7 changed" in text and "check ok: GPU 0-7" in text
    assert here.find("main .code .before").text == "-old"
    assert "Undo nodevet rollback runs/7f3a91c2-1" in text
    panel = " ".join(page("rollout", "#host=gpu001").find("#panel").text.split())
    assert "490 W → 700 W on GPU 0-7" in panel and "risk live" in panel, panel
    assert "check ok: GPU 0-7" in panel and "-old +new" in panel
    here.choose("verdict", "refused")
    assert here.hosts() == ["gpu012"]


COLOUR = "getComputedStyle(document.querySelector('{}')).color.match(/\\d+/g).map(Number)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_expected_values_are_green_and_actual_ones_red(scheme, page, browser):
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    for which, good, bad in (
        ("racks", "#panel .diff .expected", "#panel .diff .actual"),
        ("rollout", ".code .after", ".code .before"),
    ):
        here = page(which, "#host=gpu004")
        red, green, _ = here.script(COLOUR.format(good))
        assert green > red
        red, green, _ = here.script(COLOUR.format(bad))
        assert red > green


def test_the_panel_of_a_host_shows_its_facts(page):
    panel = page("racks", "#host=gpu001").find("#panel .about").text
    assert "GPUs\n8 × NVIDIA H100 80GB HBM3" in panel
    assert "power limit\n8 × 700 W" in panel
    assert "uptime\n1 d 2 h" in panel or "uptime\n26 h" in panel
    assert "groups\nh100, rack1" in panel
    about = page("mixed", "#host=gpu120").find("#panel .about").text
    assert about.startswith("why\nconnection refused") and "GPUs" not in about


def test_equal_parts_share_one_row_with_their_ids(page):
    panel = page("racks", "#host=gpu002").find("#panel")
    assert "cpufreq 0-31" in panel.text
    assert len(panel.find_elements("css selector", ".finding")) == 1
    panel = page("racks", "#host=gpu003").find("#panel").text
    assert "serial 1658390340625, VBIOS 96.00.99.00.01" in panel
    assert "0000:69:00.0 · GPU-gpu003-0005" in panel


def test_groups_filter_and_make_sections(page):
    here = page("racks")
    here.choose("group", "rack2 (4)")
    assert here.hosts() == ["gpu005", "gpu006", "gpu007", "gpu008"]
    assert here.fragment() == "#group=rack2"
    here.find("#clear").click()
    here.find("#by").click()
    heads = here.script(
        "[...document.querySelectorAll('#matrix .section')].map(head => head.innerText)"
    )
    assert [" ".join(head.split()) for head in heads] == [
        "rack1 4 hosts: 3 fail, 1 ok",
        "rack2 4 hosts: 4 ok",
    ]
    assert here.hosts()[:4] == ["gpu003", "gpu004", "gpu002", "gpu001"] or len(here.hosts()) == 8
    assert page("racks", "#by=1").find("#by").is_selected()


FOUND = "[...(CSS.highlights.get('found') || [])].map(range => range.toString())"


def test_search_filters_the_findings_and_marks_what_was_found(page):
    here = page("racks")
    here.find("#q").send_keys("POWERSAVE")
    assert here.hosts() == ["gpu002"]
    assert len(here.lines()) == 1 and "cpu_governor" in here.lines()[0]
    assert set(here.script(FOUND)) == {"powersave"}
    here.find("#matrix tbody a").click()
    assert here.script(
        "[...CSS.highlights.get('found')].some("
        "range => document.getElementById('panel').contains(range.startContainer))"
    )
    here.find("#clear").click()
    assert here.script(FOUND) == []


def test_a_search_folds_away_the_other_differences_of_a_host(page):
    here = page("one", "#host=node-7.example&q=module_20")
    summary = here.find("#panel details summary").text
    assert summary == "5 other differences without “module_20”"


def copied(here, button):
    here.script("(window.kept = null, navigator.clipboard.writeText = async t => { kept = t; }, 1)")
    here.browser.execute_script("arguments[0].click()", button)
    return here.script("window.kept")


def test_hosts_commands_and_findings_can_be_copied(page):
    here = page("racks", "#host=gpu003")
    assert copied(here, here.find("#copy-hosts")) == "gpu[001-008]"
    buttons = {b.text: b for b in here.find("#panel").find_elements("css selector", ".copy")}
    assert copied(here, buttons["Copy command"]) == "nodevet explain row_remapping"
    finding = json.loads(copied(here, buttons["Copy JSON"]))
    assert finding["check"] == "row_remapping" and finding["host"] == "gpu003"
    assert (finding["expected"], finding["actual"], finding["subject"]) == (0, 1, "GPU 5")
    assert finding["parts"][0]["details"] == "serial 1658390340625, VBIOS 96.00.99.00.01"
    assert buttons["Copy JSON"].text == "Copied"
    row = here.find("#lines tbody .copy")
    assert copied(here, row) in ("gpu002", "gpu003", "gpu004")


def test_a_page_without_a_clipboard_copies_by_hand(page):
    here = page("racks")
    here.script(
        "(window.kept = null, navigator.clipboard.writeText = async () => { throw 1; },"
        " document.execCommand = () => { kept = document.activeElement.value; return true; }, 1)"
    )
    here.find("#copy-hosts").click()
    assert here.script("window.kept") == "gpu[001-008]"
    assert here.find("#copy-hosts").text == "Copied"


COVERED = """(() => {
  const box = document.getElementById('matrix').getBoundingClientRect();
  const cells = [...document.querySelectorAll('#matrix thead th button, #matrix thead .outcome')];
  const seen = cells.map(cell => [cell, cell.getBoundingClientRect()]).filter(([, r]) =>
    r.width && r.top >= 0 && r.bottom <= innerHeight && r.left >= box.left && r.right <= box.right);
  const heads = [...document.querySelectorAll('#matrix thead th')];
  const sticky = heads.filter(head => getComputedStyle(head).left !== 'auto');
  const corner = sticky.at(-1).getBoundingClientRect();
  return [seen.length, seen.filter(([cell, r]) => {
    const x = (r.left + r.right) / 2, y = (r.top + r.bottom) / 2;
    if (!sticky.includes(cell.closest('th')) && x < corner.right) return false;
    const top = document.elementFromPoint(x, y);
    return !cell.closest('th').contains(top);
  }).map(([cell]) => cell.textContent)];
})()"""


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_covers_the_head_of_the_matrix(width, page, browser):
    height = 900
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        here = page("fleet")
        head = here.script("document.querySelector('#matrix thead').getBoundingClientRect().top")
        for down in (max(0, head - above) for above in (600, 300, 5)):
            here.script(f"(window.scrollTo(0, {down}), 1)")
            for inside, across in ((0, 0), (700, 0), (700, 90)):
                here.script(f"(document.getElementById('matrix').scrollTo({across}, {inside}), 1)")
                seen, covered = here.script(COVERED)
                assert seen > 0 and covered == [], (down, inside, across)
        hidden = here.script(
            "(() => { const a = document.querySelector('#matrix tbody a');"
            " const head = document.querySelector('#matrix thead').getBoundingClientRect();"
            " a.focus(); a.scrollIntoView({block: 'nearest'});"
            " return a.getBoundingClientRect().top < head.bottom - 1; })()"
        )
        assert not hidden
        assert here.script("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_no_word_is_broken_in_its_middle(page):
    here = page("racks", "#host=gpu002")
    broken = here.script(
        "[...document.querySelectorAll('#lines .what, #lines .tag, #panel .tag, #panel h3 .check,"
        " #panel dt')].filter(e => getComputedStyle(e).overflowWrap === 'anywhere').length"
    )
    assert broken == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("which", "fragment"),
    [("racks", ""), ("racks", "#host=gpu003&by=1"), ("rollout", "")],
)
def test_axe_finds_nothing(which, fragment, scheme, page, browser):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    axe = Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    here = page(which, fragment)
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then(found => done(found), error => done(`${error}`))"
    )
    assert len(found["passes"]) > 15
    assert [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"]][:3])
        for each in found["violations"]
    ] == []
    assert here.find("h1").is_displayed()
