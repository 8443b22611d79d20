"""The site of the five nights in Chromium: from a disk and from a web server, in light and dark, on
a desk and on a telephone, by keyboard, and without scripts."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import five_nights
import pytest
from browser import chromium, needs_chromium, show

from nodevet.past.site.names import part_page, run_page

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
LOST = "GPU-2b40377d-a530-5342-adad-e7ade6950084"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile"), 1400, 900) as browser:
        yield browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of a web server for the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def search(driver: Any, text: str) -> list[str]:
    """The links that a search for this text lists."""
    from selenium.webdriver.support.ui import WebDriverWait

    box = driver.find_element("id", "q")
    box.clear()
    box.send_keys(text)
    found = driver.find_element("id", "found")
    WebDriverWait(driver, 60).until(lambda _: found.get_attribute("aria-busy") == "false")
    return [link.text for link in found.find_elements("tag name", "a")]


@pytest.mark.parametrize("width", [1400, 390])
def test_pages_fit_in_light_and_dark(driver: Any, site: Path, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    run = run_page(five_nights.run_id(5))
    for path in ("index.html", "hosts.html", "hosts/gpu009.html", run, part_page(LOST)):
        for scheme in ("light", "dark"):
            show(driver, site / path, scheme)
            wide, high = driver.execute_script(
                "const tiles = document.querySelector('.tiles');"
                "return [document.documentElement.scrollWidth > innerWidth,"
                " tiles && tiles.getBoundingClientRect().bottom]"
            )
            assert not wide
            if path == "index.html":
                assert 0 < high < 450  # the numbers are on the first screen
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_search_finds_hosts_and_parts(driver: Any, site: Path, served: str) -> None:
    for address in ((site / "hosts/gpu001.html").as_uri(), f"{served}hosts/gpu001.html"):
        driver.get(address)
        assert search(driver, "gpu[003-004,9]") == ["gpu003", "gpu004"]
        assert search(driver, "a100 fail") == ["a100-06"]
        assert search(driver, LOST[:10].upper()) == [LOST]
        assert search(driver, "1607913699460") == [LOST]  # its serial number
        assert search(driver, "nothing so named") == []
        assert search(driver, LOST[:10]) == [LOST]
        driver.find_element("css selector", "#found a").click()
        assert LOST in driver.title
        assert driver.current_url.endswith(part_page(LOST))
        assert driver.get_log("browser") == []


def test_a_host_shows_its_last_nights(driver: Any, site: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get((site / "hosts/gpu009.html").as_uri())
    state = driver.find_element("id", "state")
    WebDriverWait(driver, 60).until(lambda _: state.is_displayed())
    assert state.text.replace("\n", " ") == "last visit: fail, 2026-11-20 02:00 ✕•✕•✕"
    state.find_element("tag name", "a").click()
    assert driver.current_url.endswith(run_page(five_nights.run_id(5)))


def test_a_nodeset_links_to_its_hosts_and_the_keyboard_is_enough(driver: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get((site / "index.html").as_uri())
    driver.find_element("link text", "gpu[005-006]").click()
    found = driver.find_element("id", "found")
    WebDriverWait(driver, 60).until(lambda _: found.text)
    assert [each.text for each in found.find_elements("tag name", "a")] == ["gpu005", "gpu006"]
    driver.get((site / "index.html").as_uri())
    driver.find_element("tag name", "body").send_keys("/")
    assert driver.switch_to.active_element.get_attribute("id") == "q"
    assert search(driver, "gpu012") == ["gpu012"]
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(driver, 60).until(lambda _: driver.current_url.endswith("hosts/gpu012.html"))


def test_without_scripts_everything_is_linked(driver: Any, site: Path) -> None:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get((site / "index.html").as_uri())
        assert not driver.find_element("id", "q").is_displayed()
        driver.find_element("css selector", "a.tile.fail").click()
        assert driver.current_url.endswith("hosts.html#fail")
        driver.find_element("link text", "gpu009").click()
        assert driver.title.startswith("gpu009: fail")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
