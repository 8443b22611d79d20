"""The data for the search on the pages. It consists of scripts, because a page from disk may load
nothing else. Pure."""

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
MOST_SHARED = 8  # parts with one name; a name that more share, such as a part number, is useless


def script(key: str, data: Any) -> str:
    """A script that passes this data to the script of the page."""
    return f'nodevet("{key}",{msgspec.json.encode(data).decode()})\n'


def host_data(lines: Iterable[HostLine]) -> dict[str, list[Any]]:
    """All words and groups, and a row for each host: its name, the indexes of its word and groups,
    and the name of its page if that differs from the name."""
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
    """By key, the rows of some hosts: name, word, time, page of the run, marks of nights."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        row = [page_name(line.host), line.word, line.at, run_page(line.run), line.marks]
        rows[state_key(line.host)].append(row)
    return iter(rows.items())


def part_data(
    parts: Sequence[PartNow], paged: Collection[str]
) -> Iterator[tuple[str, list[list[str]]]]:
    """Portions of about CHUNK rows (name, id, host, page) sorted by name, each with its first name.
    The last name of a portion decides where it ends, so a new name changes only one."""
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
    """A name that only this data has."""
    return f"p-{hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:16]}"
