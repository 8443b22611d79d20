"""The pages of the history in Chromium, light and dark: charts are drawn, and nothing overflows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from browser import chromium, needs_chromium, show

Say = Callable[..., str]


@needs_chromium
@pytest.mark.timeout(300)
def test_pages_are_drawn_in_light_and_dark(say: Say, tmp_path: Path) -> None:
    pages = {"run": ("runs", "last"), "heat": ("trend", "gpu.gpus[].temperature_gpu_c")}
    pages["part"] = ("part", "GPU-2b40377d")
    for name, words in pages.items():
        say(*words, "--format", f"html:{tmp_path / name}.html")
    with chromium(tmp_path / "profile", 1200, 900) as driver:
        for name in pages:
            for scheme in ("light", "dark"):
                show(driver, tmp_path / f"{name}.html", scheme)
                drawn, wide = driver.execute_script(
                    "return [document.querySelectorAll('svg polyline, svg polygon').length,"
                    " document.documentElement.scrollWidth > innerWidth]"
                )
                assert bool(drawn) == (name != "part")
                assert not wide
