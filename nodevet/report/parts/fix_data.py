"""What the script of the HTML page draws from, of a run of fixes. Pure.

As `nodevet.report.parts.page_data`: a column is a fix, a finding is one step of a host.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.fix import result_text as fixes
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.model import Finding, Verdict
from nodevet.report.parts.page_data import Shared, given, shortened, text
from nodevet.resource import Contents, State, describe, kind_of
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.findings.facts import watts
from nodevet.vet.findings.words import in_ranges

TONES = {
    Outcome.ROLLBACK_FAILED: "fail critical",
    Outcome.UNKNOWN: "unknown",
    Outcome.FAILED: "fail critical",
    Outcome.PARTIAL: "fail warning",
    Outcome.REFUSED: "fail warning",
    Outcome.NOT_ATTEMPTED: "unreached",
    Outcome.PENDING: "waived",
    Outcome.ROLLED_BACK: "ok",
    Outcome.VERIFIED_AFTER_REBOOT: "ok",
    Outcome.CHANGED: "ok",
    Outcome.UNCHANGED: "ok",
}
FEW = 3  # settings that are listed by name; more that changed alike are counted
EVERYBODY = 0o004  # may read a file of this mode
_POLICY = re.compile(r".*/cpufreq/policy(\d+)/(\w+)")


def data(result: Result, contents: Contents) -> dict[str, Any]:
    """What the script draws from of a run of fixes. `contents`: what files held."""
    columns, sets, findings = Shared(), Shared(), Shared()
    hosts = []
    for host in result.hosts:
        steps = [_step(step, columns, contents) for step in host.steps]
        members = tuple(findings.place(msgspec.json.encode(step)) for step in steps)
        hosts.append(given({**_host(host), "set": sets.place(members)}))
    return {
        "kind": "fixes",
        "checks": [text(fix) for fix in columns.values],
        "findings": [msgspec.json.decode(each) for each in findings.values],
        "sets": sets.values,
        "about": [],
        "hosts": hosts,
        "lines": list(_lines(result)),
        "outcomes": {
            outcome.words: number for outcome, number in fixes.tally(result).items() if number
        },
        "verdicts": {outcome.words: _tone(result, outcome) for outcome in Outcome},
        "compared": False,
        "fails": [],
    }


def _tone(result: Result, outcome: Outcome) -> str:
    tone = TONES[outcome]
    return "fail warning" if tone == "ok" and not result.good(outcome) else tone


def _host(host: HostResult) -> dict[str, Any]:
    marks = (("canary", host.canary), ("rebooted", host.rebooted))
    return {
        "name": name(host.host),
        "outcome": host.outcome.words,
        "why": text(host.why),
        "vetted": True,
        "marks": [word for word, on in marks if on],
        "own": {"took": elapsed(host.seconds)},
    }


def _step(step: StepResult, columns: Shared, contents: Contents) -> dict[str, Any]:
    subjects = in_ranges(label for label in step.subjects if label)
    return given(
        {
            "check": columns.place(step.fix),
            "verdict": step.outcome.words,
            "severity": "critical",
            "label": text(subjects),
            "what": brief(_change(step), fixes.LONGEST),
            "why": text(step.why),
            "risk": f"risk {step.risk.value}",
            "said": fixes.verdicts(step),
            "ran": [[fixes.ran(one), one.ok is True] for one in step.ran],
            "settings": list(_settings(step)),
            "files": list(_files(step, contents)),
        }
    )


def _change(step: StepResult) -> str:
    """`500 W → 700 W`, and the other way round of what was rolled back as asked."""
    values = Finding(verdict=Verdict.FAIL, unit=step.unit)
    sides = [values.text(step.actual), values.text(step.expected)]
    return " → ".join(sides[::-1] if step.outcome is Outcome.ROLLED_BACK else sides)


def _files(step: StepResult, contents: Contents) -> Iterator[list[Any]]:
    """Files that are not as they were: path, what changed, lines of a diff, a note.

    A page is passed on more freely than a run's folder: the content of a file that not everybody
    on its node may read is not in it.
    """
    diffs = fixes.diffs(step, contents)
    for then, now in fixes.changed(step):
        if then.resource.kind != "file":
            continue
        label = plain(then.resource.label)
        lines, note = diffs.get(label, ()), ""
        if lines and not (_open(then) and _open(now)):
            lines, note = (), "Not everybody may read this file: --format diff shows its content."
        before, after = (plain(describe(each)) for each in (then, now))
        change = f"{before} → {after}" if before != after else "other content"
        yield [text(then.resource.name), change, shortened(lines), note]


def _open(state: State) -> bool:
    mode = state.mapping.get("mode")
    return not state.exists or (isinstance(mode, int) and bool(mode & EVERYBODY))


def _settings(step: StepResult) -> Iterator[list[str]]:
    """What is not as it was, but for files: (setting, of what, before, after), as people say it;
    what changed alike is one row."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for then, now in fixes.changed(step):
        if then.resource.kind != "file":
            setting, part, noun = _named(then)
            before, after = _worded(then, now)
            rows.setdefault((setting, noun, before, after), []).append(part)
    gpus = [label for label in step.subjects if label.startswith("GPU ")]
    for (setting, noun, before, after), parts in sorted(rows.items(), key=_hardware_first):
        where = ", ".join(parts)
        if noun == "GPU" and len(parts) == len(gpus):
            where = in_ranges(gpus)
        elif noun == "policy":
            where = in_ranges(f"policy {part}" for part in parts)
        elif noun and len(parts) > FEW:
            where = count(len(parts), noun)
        yield [text(each) for each in (setting, where, before, after)]


def _hardware_first(row: tuple[tuple[str, str, str, str], list[str]]) -> bool:
    return row[0][1] not in ("GPU", "policy")


def _named(state: State) -> tuple[str, str, str]:
    """The setting, which one of many has it, and what these are called."""
    resource = state.resource
    if gpu := kind_of(resource).gpu_of(resource):
        field = resource.name.rpartition(":")[2]
        return re.sub("_(mw|mhz)$", "", field).replace("_", " "), gpu, "GPU"
    if policy := _POLICY.fullmatch(resource.name):
        return policy[2], policy[1], "policy"
    return resource.kind, resource.name, resource.kind


def _worded(then: State, now: State) -> tuple[str, str]:
    """Both states with their units; of two with parts, the parts that differ."""
    if then.mapping and now.mapping:
        keys = [key for key in then.mapping if then.mapping[key] != now.mapping.get(key)]
        sides: list[State] = [
            msgspec.structs.replace(each, value={key: each.mapping.get(key) for key in keys})
            for each in (then, now)
        ]
    else:
        sides = [then, now]
    one, other = (_with_unit(each) for each in sides)
    return plain(one), plain(other)


def _with_unit(state: State) -> str:
    shown = describe(state)
    if not kind_of(state.resource).gpu_of(state.resource) or not shown.isdecimal():
        return shown
    if state.resource.name.endswith("_mw"):
        return watts(shown)
    return f"{shown} MHz" if state.resource.name.endswith("_mhz") else shown


def _lines(result: Result) -> Iterator[dict[str, Any]]:
    """One row for all hosts that ended alike, after the same steps; worst first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, host in enumerate(result.hosts):
        steps = tuple(
            (step.fix, _change(step), in_ranges(filter(None, step.subjects)), step.outcome)
            for step in host.steps
        )
        groups.setdefault((host.outcome, host.why, steps), []).append(place)
    for (outcome, why, steps), places in sorted(groups.items(), key=_worst_first):
        told = "; ".join(
            plain(f"{fix} {change}{f' on {where}' if where else ''}")
            for fix, change, where, _ in steps
        )
        yield {
            "label": outcome.words.upper(),
            "check": "",
            "checks": sorted({plain(fix) for fix, *_ in steps}),
            "severity": "critical",
            "fails": not result.good(outcome),
            "what": brief(why, fixes.LONGEST) if why else text(told),
            "note": text(told) if why else "",
            "advice": [],
            "where": nodeset(result.hosts[place].host for place in places),
            "hosts": places,
            "subjects": "",
            "new": 0,
            "count": len(places),
        }


def _worst_first(group: tuple[tuple[Any, ...], list[int]]) -> tuple[int, int]:
    return group[0][0].rank, -len(group[1])
