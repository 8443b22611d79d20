"""Measures the site of a store: how long nodevet writes it, and what a browser loads of it.

Usage: pages.py STORE. `history.py STORE --hosts 10000` records such a store.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nodevet.base.processes import cores
from nodevet.past.use.site.write import write_site

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/rigs"))
from browser import chromium

LOADED = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd"


def cpu() -> float:
    """Seconds of CPU of this process and its children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def writing(url: str, folder: Path) -> Iterator[str]:
    """A row for the first time, and one for when nothing changed."""
    for name in ("first time", "nothing changed"):
        begun, clock = cpu(), time.perf_counter()
        written = write_site(url, folder, processes=cores())
        seconds = time.perf_counter() - clock
        yield f"| {name} | {written.written:,} | {seconds:.1f} s | {cpu() - begun:.1f} s |"


def opening(folder: Path, profile: Path) -> Iterator[str]:
    """A row for each kind of page: its size, and the time until Chromium has drawn it."""
    kinds = [folder / "index.html", folder / "hosts.html"]
    for inside in ("hosts", "runs", "checks", "parts"):
        kinds += sorted((folder / inside).iterdir(), key=lambda file: file.stat().st_size)[-1:]
    with chromium(profile, 1400, 900) as driver:
        for file in kinds:
            driver.get(file.as_uri())
            drawn = driver.execute_script(LOADED) / 1000
            size = file.stat().st_size
            yield f"| {file.relative_to(folder)} | {size / 1e3:,.0f} kB | {drawn:.2f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    url = f"sqlite:///{parser.parse_args().store.absolute()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "public"
        print("| written | files | wall time | CPU |\n|---|---:|---:|---:|")
        for row in writing(url, folder):
            print(row)
        print("\n| largest page of a kind | size | opens in |\n|---|---:|---:|")
        for row in opening(folder, Path(name) / "profile"):
            print(row)
        data = sorted((folder / "data").iterdir(), key=lambda file: file.stat().st_size)
        print(f"\nlargest data: {data[-1].name}, {data[-1].stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()
