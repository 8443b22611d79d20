"""Turn the names of hosts, parts and runs in the texts of a page into links. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from markupsafe import Markup, escape

from nodevet.past.listing import refs
from nodevet.past.sheets.parts import short
from nodevet.past.site.names import host_page, list_page, part_page, run_page
from nodevet.sheet.text import name

WORD = re.compile(r"(?:[^\s,;()\[\]]|\[[0-9,-]+\])+")
NODESET = re.compile(r"([^\[\]]*)\[([0-9]+)[0-9,-]*\]([^\[\]]*)")
SET = Markup('<a class="set" href="{}">{}</a>')
COMMA = Markup(",<wbr>")  # a nodeset wraps there
LINK = Markup('<a href="{}">{}</a>')


def paths(hosts: Iterable[str], parts: Iterable[str], runs: Mapping[str, str]) -> dict[str, str]:
    """The path of the page of each name. `runs`: ids of runs, and their names in lists."""
    by_name: dict[str, str] = {}
    doubtful = set()
    for part in parts:
        for text in (short(part), part):
            if by_name.setdefault(text, part_page(part)) != part_page(part):
                doubtful.add(text)
    for text in doubtful:
        del by_name[text]
    by_name |= {ref: run_page(run) for run, ref in runs.items()}
    return by_name | {name(host): host_page(host) for host in hosts}


def run_names(shown: Iterable[str], recorded: Iterable[str]) -> dict[str, str]:
    """By id, the name that lists show for each run with a page."""
    names = refs([*recorded])
    return {run: names[run] for run in shown}


def linker(by_name: Mapping[str, str], top: str) -> Callable[[str], Markup]:
    """Escapes a text and links the names in it, and each nodeset to a search for it. `top`: the
    path of the site's folder."""

    def link(word: str) -> Markup:
        if path := by_name.get(word):
            return LINK.format(top + path, word)
        folded = NODESET.fullmatch(word)
        if folded is None:
            return escape(word)
        text = escape(word).replace(",", COMMA)
        if "".join(folded.groups()) not in by_name:
            return text
        return SET.format(f"{top}{list_page(0)}#q={quote(word)}", text)

    def linked(text: str) -> Markup:
        if text in by_name:
            return link(text)
        pieces, end = [], 0
        for word in WORD.finditer(text):
            pieces += [escape(text[end : word.start()]), link(word[0])]
            end = word.end()
        return Markup("").join([*pieces, escape(text[end:])])

    return linked
