"""Hosts from standard input: nodesets, any number on a line, or Ansible's JSON."""

import re
import sys
from collections.abc import Iterator
from typing import IO

from nodevet.base.problems import Place, Problem
from nodevet.inventory.documents import MAX_BYTES, decode
from nodevet.inventory.entries import Found
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.select import Word

NAME = "<stdin>"
WORD = re.compile(r"[^\s\[#]*(?:\[[^\]\n]*\]?[^\s\[#]*)*")


def read(stream: IO[bytes] | None) -> Found | list[Word]:
    """An inventory if it is JSON, else words like those of the command line.

    Raises InventoryError if it is too large, no text, or says nothing.
    """
    text = decode((stream or sys.stdin.buffer).read(MAX_BYTES + 1), NAME)
    if text.lstrip()[:1] == "{":
        from nodevet.inventory.sources.ansible_json import parse

        return parse(text, NAME)
    words = list(words_of(text, NAME))
    if not words:
        raise InventoryError([Problem(NAME, "", "names no host", "write one nodeset per line")])
    return words


def words_of(text: str, name: str) -> Iterator[Word]:
    """The nodesets in a text, which `name` says where it is from."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in WORD.finditer(line.partition("#")[0]):
            word = found[0].strip(",")
            if word:
                yield Word(word, Place(number, found.start() + 1, name))
