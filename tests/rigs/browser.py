"""A real browser for the pages that nodevet writes: Chromium, headless."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
UBUNTU = "\nID=ubuntu\n" in f"\n{Path('/etc/os-release').read_text(encoding='utf-8')}"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="Chromium comes as a snap on Ubuntu"
    if UBUNTU
    else "Chromium or chromedriver is not installed",
)


@contextmanager
def chromium(profile: Path, width: int, height: int) -> Iterator[Any]:
    """A browser with a profile of its own, which ends with the block; its logs are kept."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Any, page: Path, scheme: str) -> None:
    """Open a page as who prefers light or dark sees it; it is so, and the browser has nothing to
    complain of."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(page.as_uri())
    assert driver.get_log("browser") == []
    ink, paper = driver.execute_script(
        "const of = getComputedStyle(document.body); return [of.color, of.backgroundColor]"
    )
    dark = [sum(map(int, re.findall(r"\d+", colour)[:3])) < 384 for colour in (ink, paper)]
    assert dark == [scheme == "light", scheme == "dark"]
