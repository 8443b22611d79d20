"""The data that the pages' script searches, as scripts: a page from a disk may load nothing else.
Pure."""

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from nodevet.base.printable import plain
from nodevet.past.site.fleet import HostLine
from nodevet.past.site.names import host_page, page_name, part_page, run_page
from nodevet.sheet.text import name
from nodevet.store.records.latest import PartNow

CHUNK = 512  # names of parts in one file, about
MOST_SHARED = 8  # parts with one name; a name of more, such as a part number, finds nothing useful


def script(key: str, data: Any) -> str:
    """A script that passes this data to the script of the page."""
    return f'nodevet("{key}",{msgspec.json.encode(data).decode()})\n'


def host_data(lines: Iterable[HostLine]) -> dict[str, list[Any]]:
    """The words and groups that hosts have; then a row for each host: name, places of its word and
    groups, and the name of its page if that is another one."""
    words: dict[str, int] = {}
    groups: dict[str, int] = {}
    rows = []
    for line in lines:
        word = words.setdefault(line.word, len(words))
        row = [line.label, word, groups.setdefault(line.groups, len(groups))]
        page = page_name(line.host)
        rows.append(row if page == line.label else [*row, page])
    return {"words": list(words), "groups": list(groups), "hosts": rows}


def state_key(host: str) -> str:
    """The name of the data with the last visit of a host, which its page shows."""
    return f"s-{hashlib.sha256(host.encode('utf-8', 'surrogatepass')).hexdigest()[:2]}"


def state_data(lines: Iterable[HostLine]) -> Iterator[tuple[str, list[Any]]]:
    """By name the rows of some hosts: name, word, time, page of the run, marks of nights."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        row = [page_name(line.host), line.word, line.at, run_page(line.run), line.marks]
        rows[state_key(line.host)].append(row)
    return iter(rows.items())


def part_data(
    parts: Sequence[PartNow], paged: Collection[str]
) -> Iterator[tuple[str, list[list[str]]]]:
    """Rows for the sorted names of parts, in portions of about CHUNK, by their first name: name,
    id, host, page. A new name changes one portion only: where one ends depends on its last name."""
    shared = Counter(part.name for part in parts)
    number = 0

    def portion(part: PartNow) -> int:
        nonlocal number
        number += zlib.crc32(part.name.encode()) % CHUNK == 0
        return number

    for _, members in groupby((p for p in parts if shared[p.name] <= MOST_SHARED), portion):
        rows = [
            [
                part.name,
                plain(part.id),
                name(part.host),
                part_page(part.id) if part.id in paged else host_page(part.host),
            ]
            for part in members
        ]
        yield rows[0][0], rows


def chunk_key(rows: Any) -> str:
    """A name for data that no other data has."""
    return f"p-{hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:16]}"
