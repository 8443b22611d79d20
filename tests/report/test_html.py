"""The HTML report in a real browser: filters, links, keyboard, hostile text, 2,000 hosts."""

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from nodevet import report
from nodevet.report.parts.text import name

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

UBUNTU = "\nID=ubuntu\n" in f"\n{Path('/etc/os-release').read_text(encoding='utf-8')}"
pytestmark = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="Chromium comes as a snap on Ubuntu"
    if UBUNTU
    else "Chromium or chromedriver is not installed",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1440,900",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, cases, previous, fleet, fixed):
    folder = tmp_path_factory.mktemp("pages")
    made = {name: report.render("html", run) for name, run in cases.items()}
    made["since"] = report.render("html", cases["mixed"], previous=previous)
    made["fleet"] = report.render("html", fleet)
    made["fixes"] = report.render("html", fixed)
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
        return self.script(
            "[...document.querySelectorAll('#matrix tbody a')].map(a => a.textContent)"
        )

    def lines(self):
        rows = "document.querySelectorAll('#lines tbody tr:not(.advice)')"
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
    assert here.find("#lines tr.advice").text == "Advice: reseat the riser"
    first = " ".join(here.lines()[0].split())
    assert first == "FAIL power_limit 500 W, expected 700 W gpu[001-004,007] 5 hosts, 40 GPUs"
    assert len(here.hosts()) == 128
    assert here.hosts()[0] == "gpu001"


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
    assert here.lines()[0].split()[2] == "cpu_governor"


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
    here.find("#lines a[data-line='0']").click()
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
    assert "- x16\n+ x8\nlimited by root port 0000:39:01.0" in panel
    assert "baselines/nvidia-h100-sxm.yaml:16" in panel
    assert "GPU-gpu013-0004 · 0000:59:00.0" in panel
    assert page("mixed", "#host=nobody").find("#panel").text.endswith("This run has no such host.")


def test_back_closes_the_host_and_a_changed_address_is_followed(page):
    here = page("mixed", "#verdict=fail")
    here.find("#matrix tbody a").click()
    assert here.fragment() == "#verdict=fail&host=gpu001"
    here.browser.back()
    assert not here.find("#panel").is_displayed()
    here.script("location.hash = '#host=gpu100'")
    deadline = time.monotonic() + 20
    while "GPU is lost" not in here.find("#panel").text and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "NVML: GPU is lost" in here.find("#panel").text


def test_a_cell_leads_to_its_check(page):
    here = page("mixed")
    here.find("#matrix td.fail").click()
    assert here.focused().startswith("power_limit")


def test_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    here = page("mixed")
    here.keys("/")
    assert here.script("document.activeElement.id") == "q"
    here.keys("gpu03", Keys.ARROW_DOWN)
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
    assert here.focused() == here.hosts()[-1]
    here.keys("/", Keys.ESCAPE)
    assert here.script("document.getElementById('q').value") == ""
    assert len(here.hosts()) == 128


def test_one_row_alone_is_in_the_tab_order(page):
    here = page("mixed")
    assert here.script("document.querySelectorAll('#matrix tbody a[tabindex=\"0\"]').length") == 1


def test_it_can_be_read_without_seeing_it(page):
    here = page("mixed")
    assert here.script("document.documentElement.lang") == "en"
    assert here.find("#shown").get_attribute("aria-live") == "polite"
    row = here.find("#matrix tbody tr")
    cells = [cell.get_attribute("textContent") for cell in row.find_elements("css selector", "td")]
    assert cells[:5] == ["fail", "ok", "ok", "ok", "fail"]
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
    assert here.find(".since h2").text == "Since 2026-07-13 02:00:04+02:00"
    assert "Fixed 1\ngpu060" in here.find(".since").text
    here.find("#new").click()
    assert "gpu002" not in here.hosts()
    assert {"gpu013", "gpu124"} <= set(here.hosts())


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
    assert time.monotonic() - before < 60
    here.find("#q").send_keys("gpu19")
    assert len(here.hosts()) == 100
    took = here.script(
        "(() => { const q = document.getElementById('q'); const begin = performance.now();"
        " for (const words of ['gpu1', 'gpu2', 'x8', '']) {"
        " q.value = words; q.dispatchEvent(new Event('input')); document.body.offsetHeight; }"
        " return (performance.now() - begin) / 4; })()"
    )
    assert took < 5000
    assert len(here.hosts()) == 2000


def test_one_host_is_opened_at_once(page):
    here = page("one")
    assert here.find("#panel h2").text == "node-7.example"
    assert "- module_20" in here.find("#panel").text


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
        text = browser.find_element("css selector", "noscript pre").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert text.strip() == report.render("table", cases["mixed"]).strip()


def test_a_page_of_fixes_shows_its_hosts_in_the_style_that_its_policy_allows(page, fixed):
    here = page("fixes")
    names = here.script("[...document.querySelectorAll('summary code')].map(c => c.textContent)")
    assert names == [name(host.host) for host in fixed.hosts]
    opened = here.script("[...document.querySelectorAll('details')].map(d => d.open)")
    assert opened == [host.host != "gpu001" for host in fixed.hosts]
    assert here.script("document.scripts.length") == 0
    shown = here.script("getComputedStyle(document.querySelector('.fixes .bad')).fontWeight")
    assert shown == "600", "the style is applied"
