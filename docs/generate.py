"""Write docs/checks/ and docs/fixable.md from the checks and fixes, docs/coverage.md from
docs/coverage.yaml, docs/faults.md from the faults of simulated nodes, docs/diagnosis-rules.md from
the rules of diagnoses, docs/metrics.md from what is written of a run of checks, a run of fixes and
a sweep, docs/schemas.md from the documents that nodevet stores.

.venv/bin/python docs/generate.py           # write it
.venv/bin/python docs/generate.py --check   # exit 1 where it is not current
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from nodevet.author.explain_sheet import if_it_fails
from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.baseline.param_fields import examples, param_fields
from nodevet.checking.catalog import Catalog
from nodevet.checking.needed import advised_actions
from nodevet.diagnose.classify import figures
from nodevet.diagnose.rules import RULES, Threshold
from nodevet.evidence.document import decode
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.fix import formats as fix_formats
from nodevet.fixing.model import Risk
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.model import (
    Area,
    CheckParams,
    Finding,
    HostReport,
    NeededAction,
    Severity,
    Status,
    Verdict,
)
from nodevet.model.run import Ended, Run, RunNews, StandingTrouble, Suspicion
from nodevet.vet import formats
from nodevet.vet.use import heartbeat
from nodevet_sim.faults import FAULTS, describe

FOLDER = Path(__file__).parent

HEAD = """\
# Checks

One file in `checks/` is one check; its name is its id in baselines, reports and tests.
`nodevet explain CHECK` prints its page. These pages are written by `docs/generate.py`; to change
one, change the check's docstring.
"""


def main() -> int:
    pages = check_pages(Catalog())
    stale = set((FOLDER / "checks").glob("*.md")) - set(pages)
    pages[FOLDER / "faults.md"] = faults_page()
    pages[FOLDER / "diagnosis-rules.md"] = rules_page()
    pages[FOLDER / "metrics.md"] = metrics_page()
    pages[FOLDER / "coverage.md"] = coverage_page(Catalog())
    pages[FOLDER / "fixable.md"] = fixable_page(Catalog())
    pages |= schemas_page()
    if sys.argv[1:]:
        changed = {path for path, text in pages.items() if not current(path, text)}
        for target in sorted(changed | stale):
            sys.stderr.write(f"{target} is not current: run python docs/generate.py\n")
        return 1 if changed or stale else 0
    for target, text in pages.items():
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for target in stale:
        target.unlink()
    return 0


def current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


COVERAGE_HEAD = """\
# What is covered

What operators look at by hand, what other tools for GPU nodes check and what buyers of GPU clouds
ask for: each row names the checks that judge it. If no check does, the last column says why a visit
to a node cannot judge it, or which other part of nodevet does. `docs/generate.py` writes this page
from `docs/coverage.yaml`.
"""


def coverage_page(catalog: Catalog) -> str:
    """Raises CatalogError for a check that is not there, ValueError for a row that says nothing."""
    groups = yaml.safe_load((FOLDER / "coverage.yaml").read_text(encoding="utf-8"))
    rows = [row for group in groups for row in group["rows"]]
    judged = sum(bool(row.get("by")) for row in rows)
    parts = [COVERAGE_HEAD, f"{len(rows)} rows, {judged} of them judged by checks.\n"]
    for group in groups:
        parts.append(f"## {group['title']}\n\n| what | by | besides |\n|---|---|---|")
        parts += [_covered(row, catalog) for row in group["rows"]]
        parts.append("")
    return "\n".join(parts)


def _covered(row: dict[str, Any], catalog: Catalog) -> str:
    checks = row.get("by", [])
    if not checks and not row.get("how"):
        raise ValueError(f"coverage.yaml: nothing is said of: {row['ask']}")
    for check in checks:
        catalog.check(check)
    links = ", ".join(f"[{check}](checks/{check}.md)" for check in checks)
    return f"| {row['ask']} | {links} | {row.get('how', '')} |"


FIXABLE_HEAD = """\
# What can be fixed

Every check, and how to repair a failure of it. `docs/generate.py` writes this page.

- **fix**: `nodevet plan` can plan a fix. The risk in brackets is the highest risk of this fix
  ([what the risks mean](fixes.md#what-may-be-planned)).
- **task**: a person repairs the node; the check's page has the commands.
- **none**: no command helps; a person replaces a part.

In commands, `BUS_ID` stands for the PCI bus id of the finding's GPU, such as `0000:1b:00.0`, which
`nodevet explain` prints. Do not use the GPU's number: it shifts if another GPU is lost or hidden.
Without `-i`, nvidia-smi changes every GPU.

In reports, the field `action` of a failed finding says what the failure needs
([reports](reports.md#what-a-failure-needs)).
"""


def fixable_page(catalog: Catalog) -> str:
    """The whole of docs/fixable.md. Raises CatalogError as the catalog does."""
    rows = [_fixable(check, catalog) for check in catalog.ids]
    numbers = Counter(kind_of_repair(check, catalog) for check in catalog.ids)
    head = (
        f"{len(rows)} checks: {numbers['fix']} fix, {numbers['task']} task, {numbers['none']} none."
        "\n\n| check | repair | how |\n|---|---|---|"
    )
    return "\n".join([FIXABLE_HEAD, head, *rows, ""])


def _fixable(check: str, catalog: Catalog) -> str:
    kind = kind_of_repair(check, catalog)
    how = catalog.fix_title(check) if kind == "fix" else to_fix(check, catalog)
    word = f"**fix** ({catalog.fix_risk(check)})" if kind == "fix" else kind
    cell = how.replace("|", "\\|")
    return f"| [{check}](checks/{check}.md) | {word} | {cell} |"


def kind_of_repair(check: str, catalog: Catalog) -> str:
    """`fix`; `none` if the advice of failures names only a new part; else `task`."""
    if check in catalog.fixes:
        return "fix"
    return "none" if advised_actions(check, catalog) == (NeededAction.RMA,) else "task"


def to_fix(check: str, catalog: Catalog) -> str:
    """What a person does, from the page of a check, on one line. Raises ValueError if the page does
    not say it."""
    found = re.search(r"\*\*To fix it\*\*(.*?)(?=\n\n\*\*|\Z)", catalog.page(check), re.DOTALL)
    if not found:
        raise ValueError(f"the page of {check} has no section **To fix it**")
    return " ".join(found[1].split())


FAULTS_HEAD = """\
# Faults of simulated nodes

A scenario gives faults to a node by name, `faults: [pcie-width, {power-capped: {watts: 500}}]`,
`nodevet sim set NODE fault=NAME` adds one while it runs; see [simulation.md](simulation.md).
Each parameter is listed with its default. `docs/generate.py` writes this file.
"""


def faults_page() -> str:
    """The whole of docs/faults.md."""
    return "\n".join([FAULTS_HEAD, *(f"## {name}\n\n{describe(name)}\n" for name in FAULTS)])


RULES_HEAD = """\
# Rules of a diagnosis

The thresholds of `nodevet diagnose`, each with its source; see
[diagnosis.md](diagnosis.md). A rule holds if all its conditions hold. It is undecided
if a figure is unknown and no other condition fails. `docs/generate.py` writes this page from
`nodevet/diagnose/rules.py`.
"""


def rules_page() -> str:
    """The whole of docs/diagnosis-rules.md."""
    parts = [RULES_HEAD]
    blank = figures(decode('{"schema": 1, "probe": "", "sections": {}}'), GpuActivity(index=0))
    for cause in dict.fromkeys(rule.cause for rule in RULES):
        parts.append(
            f"## {cause.value}\n\n| rule | figure | threshold | source |\n|---|---|---|---|"
        )
        for rule in (each for each in RULES if each.cause is cause):
            for at, each in enumerate(rule.thresholds):
                figure = blank[each.figure]
                source = each.source.replace("|", "\\|")
                name = "" if at else rule.name
                limit = limit_text(each, figure.unit)
                parts.append(f"| {name} | {figure.what} | {limit} | {source} |")
        parts.append("")
    return "\n".join(parts)


def limit_text(threshold: Threshold, unit: str) -> str:
    """`at least 85 %`."""
    sign = "at least" if threshold.at_least else "at most"
    return f"{sign} {threshold.value:g} {unit}".rstrip()


METRICS_HEAD = """\
# Metrics

`--format prometheus:FILE` writes these for node_exporter's textfile collector, whole or not at all.
There are a few series for each host and each check or fix, and one for each part that is not ok.
Parts that are ok are only counted. The severity is a value, not a label: a series stays the same
when the severity changes.
The metrics of a sweep are in a file of their own, its `heartbeat`. A failed sweep keeps it.
[Prometheus](integrations/prometheus.md#rules) has rules for alerts. `docs/generate.py` writes this
page.
"""
AT = "2026-01-31T02:30:00+00:00"
FINDING = Finding(verdict=Verdict.FAIL, check="power_limit")
SHADOWED = structs.replace(FINDING, severity=Severity.SHADOW)
VETTED = HostReport(
    host="gpu001",
    status=Status.VETTED,
    findings=(FINDING,),
    shadow=(SHADOWED,),
    arrived=AT,
    clock=AT,
    first_try="connection refused",
)
NEWS = RunNews(
    since=AT,
    standing=(
        StandingTrouble(host="gpu001", place=0, check="power_limit", new=True, since=AT, began=3),
    ),
    ended=(Ended(host="gpu001", check="power_limit"),),
    suspicions=(Suspicion(checks=("power_limit",), hosts=("gpu001",), judged=1),),
)
STEP = StepResult(
    id="1", fix="power_limit", subjects=("GPU 0",), expected=700, actual=490, risk=Risk.LIVE
)


def metrics_page() -> str:
    """The whole of docs/metrics.md: what is said of one host of each kind of run."""
    checks = Run(
        id="1",
        nodevet="1",
        started=AT,
        seconds=1.0,
        baselines={"site": "1"},
        news=NEWS,
        hosts=(VETTED,),
    )
    host = HostResult(host="gpu001", outcome=Outcome.CHANGED, steps=(STEP,))
    fixes = Result(
        nodevet="1", plan="1", digest="1", author="a", started=AT, seconds=1.0, hosts=(host,)
    )
    runs = {
        "A run of checks": formats.render("prometheus", checks),
        "A run of fixes": fix_formats.render("prometheus", fixes),
        "A sweep": heartbeat.text({"nightly": dict.fromkeys(heartbeat.METRICS, 0.0)}),
    }
    blocks = [METRICS_HEAD.rstrip()]
    for title, text in runs.items():
        rows = ["| metric | labels | meaning |", "|---|---|---|"]
        for metric in text_string_to_metric_families(text):
            labels = dict.fromkeys(name for sample in metric.samples for name in sample.labels)
            named = ", ".join(f"`{name}`" for name in labels)
            rows.append(f"| `{metric.name}` | {named} | {metric.documentation} |")
        blocks += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(blocks) + "\n"


SCHEMAS_HEAD = """\
# Documents

What nodevet stores is JSON, and each kind has a JSON Schema: `nodevet schema KIND` prints it. Each
document says its `schema`, a whole number that grows when a reader must change: nodevet upgrades
earlier ones if it can, and refuses others, naming the number. Fields may be added without a new
number: ignore those that you do not know. A field that is not required may be left out, and has its
default then. This file is written by `docs/generate.py`.

What other commands print with `--format json` is not stored. It has a schema, too, and names its
`kind`, except the output of `list`, `lint` and `version`.
"""
STORED = {
    "workload": "A job and the data that its GPUs need, in YAML that a person writes: "
    "[feed.md](feed.md).",
    "run": "A run of checks: `check --format json`, and the `run` of a verdict file.",
    "plan": "What fixes would change: `plan -o`. People sign its bytes.",
    "result": "How a run of fixes ended: `result.json` of its folder.",
    "status": "The state of a run of fixes: `nodevet status --format json`.",
    "evidence": "What was read on a node: `check --save`, `nodevet probe`. Each section has data "
    "or says why it has none; the schema has the fields of all of them.",
    "hosts": "Hosts, and their verdicts in a run: `nodevet list hosts --format json`.",
    "feed": "Whether nodes can feed their GPUs: `nodevet feed --format json`.",
    "diagnosis": "What GPUs wait for: `nodevet diagnose --format json`.",
    "history": "What is remembered: `--format json` of `nodevet history` and its commands; `kind` "
    "says which it is.",
    "bmc": "What BMCs report: `nodevet bmc show --format json`.",
    "comparison": "Hosts that differ from like hosts: `nodevet compare --format json`.",
    "explained": "A check, baselines or a host: `nodevet explain --format json`.",
    "pass": "What a pass says: `nodevet pass show --format json`.",
    "slurm": "What `slurm drain` and `slurm resume` did: their `--format json`.",
    "list": "What there is: `nodevet list --format json`, a list of rows.",
    "problems": "Problems of files: `nodevet lint --format json`.",
    "versions": "Versions by name: `nodevet version --format json`, a map.",
}


def schemas_page() -> dict[Path, str]:
    """The page about the documents that nodevet stores, by their schemas."""
    blocks = [SCHEMAS_HEAD.rstrip()]
    for kind, told in STORED.items():
        schema = kinds()[kind].schema(Project())
        blocks += [f"## {kind.capitalize()}", f"{told} Its schema: `nodevet schema {kind}`."]
        if kind != "evidence":
            first = schema.get("$ref", "").rpartition("/")[2]
            blocks += list(definitions(schema["$defs"], first))
    return {FOLDER / "schemas.md": "\n\n".join(blocks) + "\n"}


def definitions(found: dict[str, Any], first: str) -> Iterator[str]:
    """A table for each object of a schema, the whole document first."""
    for name in sorted(found, key=lambda name: (name != first, name)):
        properties = found[name].get("properties")
        if not properties:
            continue
        yield f"**{name}**: {found[name].get('description', '').partition(chr(10))[0]}"
        rows = ["| field | value | meaning |", "|---|---|---|"]
        for field, schema in properties.items():
            needed = " (required)" if field in found[name].get("required", ()) else ""
            about = schema.get("description", "").replace("|", "\\|").replace("\n", " ")
            rows.append(f"| `{field}`{needed} | {said(schema, found)} | {about} |")
        yield "\n".join(rows)


def said(schema: dict[str, Any], found: dict[str, Any]) -> str:
    """A value's schema in words: `list of Finding`, `text or null`."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return said(found[name], found) if "enum" in found[name] else f"**{name}**"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(said(one, found) for one in schema["anyOf"])
    kind = schema.get("type", "any value")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(said(each, found) for each in schema['prefixItems'])}]"
        return f"list of {said(schema['items'], found)}" if "items" in schema else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {said(schema['additionalProperties'], found)}"
    return {
        "string": "text",
        "integer": "whole number",
        "object": "map",
        "boolean": "true or false",
    }.get(kind, kind)


def check_pages(catalog: Catalog) -> dict[Path, str]:
    """The pages of docs/checks/: one for each check, and the index that groups them by area."""
    folder = FOLDER / "checks"
    pages = {folder / f"{name}.md": page(catalog, name) for name in catalog.ids}
    return {folder / "README.md": index(catalog), **pages}


def index(catalog: Catalog) -> str:
    """The checks by area, each with its title and severity."""
    blocks = [HEAD.rstrip()]
    for area in Area:
        names = [name for name in catalog.ids if catalog.check(name).area is area]
        told = [(name, catalog.title(name), catalog.check(name).severity.value) for name in names]
        rows = [f"| [`{name}`]({name}.md) | {title} | {word} |" for name, title, word in told]
        if rows:
            blocks.append(f"## {area.value[0].upper()}{area.value[1:]}")
            blocks.append("\n".join(["| check | ok if | severity |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def page(catalog: Catalog, name: str) -> str:
    """One check: its docstring, what a baseline may say, what verdicts depend on, and its fix."""
    check = catalog.check(name)
    fix = catalog.fix(name)
    remedy = f"fix `{name}`: {catalog.fix_title(name)}" if fix else "no fix; nothing is changed."
    blocks = [
        f"# {name}",
        catalog.page(name),
        "**In a baseline**",
        "\n\nor\n\n".join(f"```yaml\n{line}\n```" for line in examples(check.params)),
        "\n".join(fields(check.params)),
        f"**Area** {check.area.value}. "
        f"**Severity** {check.severity.value}, unless the baseline says otherwise.",
        f"**`nodevet apply`** {remedy}",
        if_it_fails(name, catalog),
        "**Verdicts depend on** " + ", ".join(f"`{path}`" for path in check.reads) + ".",
    ]
    return "\n\n".join(blocks) + "\n"


def fields(params: type[CheckParams]) -> Iterator[str]:
    """A table of the fields of Params."""
    found = tuple(param_fields(params))
    if not found:
        yield "It takes no fields."
        return
    yield "| field | value | default |"
    yield "|---|---|---|"
    for each in found:
        name = f"`{each.name}`" if each.name else "any name"
        plain = " (a plain value fills it)" if each.bare else ""
        note = f". {each.note}" if each.note else ""
        default = "required" if each.required else f"`{each.default}`" if each.default else ""
        yield f"| {name}{plain} | {each.form}{note} | {default} |"


if __name__ == "__main__":
    sys.exit(main())
