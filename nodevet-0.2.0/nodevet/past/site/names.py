"""Safe file names for the pages of hosts, parts, runs and checks. Pure."""

import hashlib
import re

SAFE = re.compile(r"[a-z0-9]+(?:[_-]+[a-z0-9]+|\.[a-z0-9]+)*")
LONGEST = 100  # characters
SLUG = 40  # characters


def page_name(text: str) -> str:
    """A file name without its ending. No other text has the same name, even if the file system
    ignores case. It has no dot, because web servers interpret every ending (`.php`, `.gz`).

    >>> page_name("gpu001"), page_name("gpu001.dc1")
    ('gpu001', 'gpu001~dc1')
    >>> page_name("../GPU 1")
    'gpu-1~~8a6b4f7a2d1f4a53'
    """
    if len(text) <= LONGEST and SAFE.fullmatch(text):
        return text.replace(".", "~")
    slug = re.sub("[^a-z0-9]+", "-", text.lower()[:SLUG]).strip("-")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug}~~{digest}"


def host_page(host: str) -> str:
    return f"hosts/{page_name(host)}.html"


def part_page(part: str) -> str:
    return f"parts/{page_name(part)}.html"


def run_page(run: str) -> str:
    return f"runs/{page_name(run)}.html"


def diff_page(run: str) -> str:
    """The page with the differences between a run and the night before it."""
    return f"runs/{page_name(run)}~~diff.html"


def check_page(check: str) -> str:
    return f"checks/{page_name(check)}.html"


def list_page(number: int) -> str:
    """The file name of page `number` of the host list, from 0."""
    return f"hosts-{number + 1}.html" if number else "hosts.html"
