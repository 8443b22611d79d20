"""A whole run as one JSON document; `nodevet report` reads it again."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodevet.base.upgrades import Document, Upgrades
from nodevet.model import Run
from nodevet.sheet.json import indented
from nodevet.vet.saved_schema import (
    UPGRADES,
    Schema,
    decode,
    is_current,
    upgraded,
)

COUNTS = True
NO_HOSTS = "[]\n}\n"  # how a run without any ends: they are its last field
INDENT = "    "


def pieces(run: Run) -> Iterator[str]:
    """The run, indented, host by host, with a newline at the end."""
    whole = indented(replace(run, hosts=()))
    head = whole.removesuffix(NO_HOSTS)
    if not run.hosts or head == whole:
        yield whole
        return
    yield head
    mark = "["
    for host in run.hosts:
        yield f"{mark}\n{INDENT}" + indented(host).rstrip("\n").replace("\n", f"\n{INDENT}")
        mark = ","
    yield "\n  ]\n}\n"


def parse(text: str | bytes, upgrades: Upgrades = UPGRADES) -> Run:
    """A run of checks from its JSON form. Raises ReportError if it is none, or of a schema that
    this nodevet does not read."""
    if is_current(decode(text, Schema, "run").schema, upgrades):
        return decode(text, Run, "run")
    return upgraded(decode(text, Document, "run"), upgrades)
