"""The differences of two runs as a sheet. Pure."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.model import Finding
from nodevet.past.listing import troubles
from nodevet.past.run_diff import FindingDiff, HostDiff, RunDiff, unvisited_hosts
from nodevet.past.sheets.findings import Since, findings
from nodevet.past.sheets.parts import LONGEST, at_text, facts_table, parts_table
from nodevet.past.sheets.runs import run_title
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import lines


def diff_sheet(diff: RunDiff, refs: tuple[str, str], clock: Clock, *, newer: int = 0) -> Sheet:
    """The differences of two runs. `newer`: the number of newer runs that were passed over."""
    before, after = diff.before, diff.after
    counts = {
        "new": len(diff.new) + len(diff.lost),
        "changed": len(diff.changed),
        "fixed": len(diff.fixed),
        "resolved": len(diff.resolved),
        "no longer judged": len(diff.gone),
        "hosts judged again": len(diff.back),
        "hosts appeared": len(diff.appeared),
        "hosts vanished": len(diff.vanished),
        "hosts replaced": len(diff.replaced),
    }
    counts_text = [
        f"{word}: {number:,}" for word, number in counts.items() if number or word == "new"
    ]
    counts_text.append(f"still: {diff.still:,}")
    parts = [
        _hosts("No longer judged: hosts", diff.lost, "after"),
        _group("New", diff.new, diff, clock),
        _group("Changed", diff.changed, diff, clock),
        _group("Fixed", diff.fixed, diff, clock, over=True),
        _group("Resolved", diff.resolved, diff, clock, over=True),
        _group("No longer judged", diff.gone, diff, clock, over=True),
        _hosts("Judged again: hosts", diff.back, "before"),
        _changed_hosts(diff),
        parts_table(diff.parts),
        facts_table(diff.facts),
    ]
    notes = [
        f"{ref} did not visit {count(unvisited, 'host')}, not compared here"
        for ref, run in zip(refs, (before, after), strict=True)
        if (unvisited := unvisited_hosts(run))
    ]
    if newer:
        notes.append(
            f"{count(newer, 'newer run')} skipped: incomplete, by hand or of other hosts; "
            "`nodevet runs` lists them"
        )
    if diff.thinned:
        pruned = count(diff.thinned, "host")
        notes.append(f"the evidence of {pruned} was pruned: their facts are not compared")
    return Sheet(
        title=f"{run_title(before, clock)} → {run_title(after, clock)}",
        kind="diff",
        facts=(f"{refs[0]} → {refs[1]}", *counts_text),
        blocks=tuple(part for part in parts if part is not None),
        end="; ".join(notes) or ("nothing differs" if diff.is_empty else ""),
    )


def _group(
    title: str, diffs: Sequence[FindingDiff], run: RunDiff, clock: Clock, *, over: bool = False
) -> TableBlock | None:
    if not diffs:
        return None
    since = Since()
    host_findings: list[tuple[str, Finding]] = []
    for diff in diffs:
        finding = diff.before if over else diff.after
        if finding is not None:
            since.add(diff.host, finding, diff.since)
            host_findings.append((diff.host, _with_before(finding, diff)))
    rows = lines(troubles(run.after, [], host_findings))
    table = findings(title, rows, since, clock, over=over)
    if title in ("New", "Changed"):
        keep = 5 if title == "Changed" else 4
        return replace(table, heads=table.heads[:keep], rows=tuple(r[:keep] for r in table.rows))
    return replace(table, note="; ".join(filter(None, (table.note, _fixed_by(diffs, clock)))))


def _fixed_by(diffs: Sequence[FindingDiff], clock: Clock) -> str:
    """`cpu_governor on a100-02 by plan 5f1c00aa, Nov 18 14:10`: the changes that fixed findings."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for diff in diffs:
        if diff.by is not None:
            plan = f"plan {brief(diff.by.plan, 24)}" if diff.by.plan else "a plan"
            key = (diff.by.fix, plan, at_text(diff.by.at, clock))
            hosts.setdefault(key, []).append(diff.host)
    return "; ".join(
        f"{brief(fix)} on {nodeset(sorted(set(hosts_fixed)))} by {plan}, {at}"
        for (fix, plan, at), hosts_fixed in hosts.items()
    )


def _with_before(finding: Finding, diff: FindingDiff) -> Finding:
    """A finding whose reason names the value before, if that changed."""
    if diff.before is None or diff.after is None or diff.before.actual == finding.actual:
        return finding
    was = f"was {diff.before.text(diff.before.actual)}"
    return replace(finding, why="; ".join(filter(None, (was, finding.why))))


def _hosts(title: str, diffs: Sequence[HostDiff], side: str) -> TableBlock | None:
    reasons: dict[str, list[str]] = {}
    for diff in diffs:
        reasons.setdefault(getattr(diff, side), []).append(diff.host)
    rows = tuple(
        (Cell(nodeset(hosts)), Cell(brief(why, LONGEST), "unreached"))
        for why, hosts in reasons.items()
    )
    return TableBlock(title=title, rows=rows) if rows else None


def _changed_hosts(diff: RunDiff) -> TableBlock | None:
    hosts_by_change = {
        "appeared": diff.appeared,
        "vanished": diff.vanished,
        "another machine, or re-imaged": diff.replaced,
        "booted": diff.rebooted,
    }
    rows = tuple(
        (Cell(nodeset(hosts)), Cell(word)) for word, hosts in hosts_by_change.items() if hosts
    )
    return TableBlock(title="Hosts", rows=rows) if rows else None
