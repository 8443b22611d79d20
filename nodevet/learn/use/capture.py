"""Capture: a baseline from good nodes, by which each of them passes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from nodevet import __version__
from nodevet.base import outputs as files
from nodevet.base.errors import UserError
from nodevet.baseline import load
from nodevet.baseline.choose import CannotTell, detected_gpus
from nodevet.checking.catalog import Catalog
from nodevet.document import kinds
from nodevet.document.kinds import DocumentKind
from nodevet.evidence.document import Evidence
from nodevet.learn.agree import Agreement, unanimous
from nodevet.learn.alike import alike
from nodevet.learn.learn import learn
from nodevet.learn.text import baseline_text
from nodevet.model import Applies, GpuMatch
from nodevet.sheet.text import nodeset

STEM = "captured"


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the baseline, and what is behind it."""

    text: str
    agreement: Agreement
    title: str


def capture(nodes: Mapping[str, Evidence], catalog: Catalog, *, title: str = "") -> Captured:
    """What these nodes agree on. Raises UserError if they are not alike, or for no node."""
    if not nodes:
        raise UserError("no host could be read: there is nothing to capture")
    groups = alike(nodes)
    if len(groups) > 1:
        shown = "; ".join(f"{nodeset(group.hosts)}: {group.what}" for group in groups[:3])
        raise UserError(f"the hosts are of {len(groups)} kinds ({shown}); capture one at a time")
    lessons = {host: learn(evidence, catalog, catalog.ids) for host, evidence in nodes.items()}
    agreement = unanimous(nodes, lessons, catalog)
    titled = title or _title(groups[0].what, nodes)
    text = baseline_text(
        agreement,
        catalog,
        title=titled,
        applies=_applies(nodes.values()),
        head=_head(agreement),
    )
    _proven(text, agreement, catalog)
    return Captured(text=text, agreement=agreement, title=titled)


def _head(agreement: Agreement) -> Sequence[str]:
    several = len(agreement.hosts) > 1
    hosts = f"{len(agreement.hosts)} hosts: " if several else ""
    said = "what all of them say, and pass by" if several else "what it says, and passes by"
    return (
        f"Captured by nodevet {__version__} from {hosts}{nodeset(agreement.hosts)}: {said}.",
        "Read it line by line: what is wrong on a node is captured too. "
        "`nodevet explain CHECK` says what each may want.",
    )


def _title(what: str, nodes: Mapping[str, Evidence]) -> str:
    counts = {
        len(gpus) for gpus in map(detected_gpus, nodes.values()) if not isinstance(gpus, CannotTell)
    }
    number = f", {counts.pop()} GPUs" if len(counts) == 1 else ""
    return f"{what}{number}" if not number.endswith(", 1 GPUs") else what


def _applies(nodes: Iterable[Evidence]) -> Applies | None:
    """The GPUs that all of them have, if these say what they are."""
    counts: set[int] = set()
    devices: set[str] = set()
    for gpus in map(detected_gpus, nodes):
        if isinstance(gpus, CannotTell) or any(gpu.device is None or gpu.vgpu for gpu in gpus):
            return None
        counts.add(len(gpus))
        devices.update(gpu.device for gpu in gpus if gpu.device)
    if not devices:
        return None
    count = counts.pop() if len(counts) == 1 else None
    return Applies(gpu=GpuMatch(devices=tuple(sorted(devices)), count=count))


def _proven(text: str, agreement: Agreement, catalog: Catalog) -> None:
    """Read the text as every other baseline is read: it says what the hosts passed by."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{STEM}.yaml")
        path.write_text(text, encoding="utf-8")
        (baseline,) = load([str(path)], catalog=catalog)
    read = {wish.check: wish.params for wish in baseline.expectations}
    meant = {expected.check: expected.params for expected in agreement.expected}
    if read != meant:
        names = ", ".join(sorted(name for name in meant if read.get(name) != meant[name]))
        raise UserError(f"what was captured cannot be written as YAML: {names}")


def try_out(file: Path, *, replace: bool) -> None:
    """Raises UserError for a file that must not be replaced, FileError for one that cannot be."""
    if file.exists() and not replace:
        found = kinds.kind_of(file)
        what = (
            f"this is {found.value}"
            if found and found is not DocumentKind.BASELINE
            else ("there is a file already")
        )
        raise UserError(f"{file}: {what}; name another with -o, or replace it with --force")
    files.try_out(file)
