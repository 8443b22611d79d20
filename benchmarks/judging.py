"""Measures what judging saved nodes costs beside decoding what judging reads of them."""

import time
from dataclasses import dataclass
from pathlib import Path

from contenders import BenchmarkError

from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence, open_evidence
from nodevet.fleet import Visit
from nodevet.model import Host
from nodevet.model.baseline import Baseline
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.judge_visit import Vetted, judge_visit
from nodevet.vet.use.saved import replay

MOST = 0.9  # of the nodes have a baseline at least


@dataclass(frozen=True)
class Judged:
    """CPU seconds of one pass over all nodes."""

    nodes: int
    size: int  # bytes of evidence
    findings: int
    decoding: float  # all sections that are read of it
    checks: float  # every finding of decoded evidence
    whole: float  # from the file's bytes to a report: decoded, its baseline chosen, judged


def measure(saved: Path, project: Path) -> Judged:
    """Each node is judged as `nodevet check --evidence` does it and, next to it, in its parts."""
    context = open_context(project, ())
    nodes = list(replay([saved]))
    for visit, host in nodes[:: len(nodes) // 50 or 1]:  # decoders and checks are made at first use
        judge_visit(visit, host, context)
    size = findings = 0
    decoding = checks = whole = 0.0
    judged_by = {baseline.name: baseline for baseline in context.baselines}
    count = 0
    for visit, host in nodes:
        vetted, seconds = reported(visit, host, context)
        baseline = judged_by.get(vetted.report.baseline)
        if baseline is None:  # a fault may leave a node to no baseline
            continue
        count += 1
        whole += seconds
        found, decoded, judged = parts(visit, context, vetted, baseline)
        decoding += decoded
        checks += judged
        findings += found
        size += len(visit.evidence or b"")
    if count < MOST * len(nodes):
        raise BenchmarkError(f"only {count} of {len(nodes)} saved nodes have a baseline")
    return Judged(count, size, findings, decoding, checks, whole)


def reported(visit: Visit, host: Host, context: VetContext) -> tuple[Vetted, float]:
    began = time.thread_time()
    vetted = judge_visit(visit, host, context)
    return vetted, time.thread_time() - began


def parts(
    visit: Visit, context: VetContext, vetted: Vetted, baseline: Baseline
) -> tuple[int, float, float]:
    """The number of findings, and the seconds of decoding and of judging alone."""
    read: Evidence | None = vetted.evidence
    if read is None or visit.evidence is None:
        raise BenchmarkError(f"{visit.host} was not judged: {vetted.report.why}")
    began = time.thread_time()
    evidence = open_evidence(visit.evidence)
    for record in read.sections:
        evidence[record]
    decoded = time.thread_time() - began
    began = time.thread_time()
    found = judge(evidence, baseline, context.catalog, host=visit.host, today=context.today)
    return len(found), decoded, time.thread_time() - began
