"""Capture good nodes as a baseline that each of them passes."""

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
from nodevet.learn.agree import Agreement, group_by_hardware, unanimous
from nodevet.learn.learn import learn
from nodevet.learn.text import baseline_text
from nodevet.model import Applies, GpuMatch
from nodevet.sheet.text import nodeset

STEM = "captured"


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the baseline, and the agreement behind it."""

    text: str
    agreement: Agreement
    title: str


def capture(nodes: Mapping[str, Evidence], catalog: Catalog, *, title: str = "") -> Captured:
    """The baseline that these nodes agree on. Raises UserError without nodes, or if their hardware
    differs."""
    if not nodes:
        raise UserError("no host could be read: there is nothing to capture")
    groups = group_by_hardware(nodes)
    if len(groups) > 1:
        kinds_text = "; ".join(f"{nodeset(group.hosts)}: {group.what}" for group in groups[:3])
        raise UserError(
            f"the hosts are of {len(groups)} kinds ({kinds_text}); capture one at a time"
        )
    lessons = {host: learn(evidence, catalog, catalog.ids) for host, evidence in nodes.items()}
    agreement = unanimous(nodes, lessons, catalog)
    baseline_title = title or _title(groups[0].what, nodes)
    text = baseline_text(
        agreement,
        catalog,
        title=baseline_title,
        applies=_applies(nodes.values()),
        head=_head(agreement),
    )
    _check_round_trip(text, agreement, catalog)
    return Captured(text=text, agreement=agreement, title=baseline_title)


def _head(agreement: Agreement) -> Sequence[str]:
    has_several = len(agreement.hosts) > 1
    hosts = f"{len(agreement.hosts)} hosts: " if has_several else ""
    claim = "their common values, which all pass" if has_several else "its values, which it passes"
    return (
        f"Captured by nodevet {__version__} from {hosts}{nodeset(agreement.hosts)}: {claim}.",
        "Read it line by line: a fault of a node is captured too. "
        "`nodevet explain CHECK` lists the params of a check.",
    )


def _title(what: str, nodes: Mapping[str, Evidence]) -> str:
    counts = {
        len(gpus) for gpus in map(detected_gpus, nodes.values()) if not isinstance(gpus, CannotTell)
    }
    number = f", {counts.pop()} GPUs" if len(counts) == 1 else ""
    return f"{what}{number}" if not number.endswith(", 1 GPUs") else what


def _applies(nodes: Iterable[Evidence]) -> Applies | None:
    """The GPUs that the nodes have; None if one of them does not identify its GPUs."""
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


def _check_round_trip(text: str, agreement: Agreement, catalog: Catalog) -> None:
    """Load the text as a baseline. Raises UserError if its params differ from the agreement."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{STEM}.yaml")
        path.write_text(text, encoding="utf-8")
        (baseline,) = load([str(path)], catalog=catalog)
    params = {wish.check: wish.params for wish in baseline.expectations}
    agreed = {expected.check: expected.params for expected in agreement.expected}
    if params != agreed:
        names = ", ".join(sorted(name for name in agreed if params.get(name) != agreed[name]))
        raise UserError(f"these captured values cannot be written as YAML: {names}")


def try_out(file: Path, *, replace: bool) -> None:
    """Check that a file can be written. Raises UserError if it must not be replaced, and
    FileError."""
    if file.exists() and not replace:
        kind = kinds.kind_of(file)
        reason = (
            f"this is {kind.value}"
            if kind and kind is not DocumentKind.BASELINE
            else "the file exists"
        )
        raise UserError(f"{file}: {reason}; name another with -o, or replace it with --force")
    files.try_out(file)
