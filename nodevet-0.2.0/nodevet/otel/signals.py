"""A recorded run in OpenTelemetry's form: a span for the run and each host, a log record for each
finding. The ids depend only on the run, so sending it twice gives the same trace. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from nodevet import __version__
from nodevet.base.age import seconds_of
from nodevet.base.printable import brief, plain
from nodevet.model import Severity, Verdict
from nodevet.model import Status as VisitStatus
from nodevet.store.records.model import FindingSpan, RecordedRun, RecordedVisit, RunState
from nodevet.vet.findings.words import difference

NANOSECONDS = 1_000_000_000
LONGEST = 1000  # characters of a text
SCOPE = InstrumentationScope("nodevet", __version__)
TROUBLE = frozenset({Verdict.FAIL, Verdict.UNKNOWN})
SEVERITIES: Mapping[Severity, SeverityNumber] = {
    Severity.CRITICAL: SeverityNumber.ERROR,
    Severity.WARNING: SeverityNumber.WARN,
    Severity.INFO: SeverityNumber.INFO,
}


def resource() -> Resource:
    """The resource of all signals: nodevet, and the attributes of OTEL_RESOURCE_ATTRIBUTES."""
    return Resource.create({"service.name": "nodevet", "service.version": __version__})


def context_of(run: str, host: str = "") -> SpanContext:
    """The ids of a run's span, or of the span of one of its hosts."""
    trace, span = (hashlib.sha256(text.encode()).digest() for text in (run, f"{run}\0{host}"))
    return SpanContext(
        trace_id=int.from_bytes(trace[:16], "big"),
        span_id=int.from_bytes(span[:8], "big"),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def trace_of(
    run: RecordedRun, visits: Iterable[RecordedVisit], about: Resource
) -> Iterator[ReadableSpan]:
    """The span of the run, and a span for each visit with a valid time."""
    start = seconds_of(run.started) or 0.0
    is_whole = run.state is RunState.COMPLETE
    ended = {} if run.exit_code is None else {"nodevet.run.exit_code": run.exit_code}
    yield _span(
        f"nodevet {run.series or 'check'}",
        context_of(run.id),
        None,
        (start, start + (run.seconds or 0.0)),
        Status(StatusCode.UNSET) if is_whole else Status(StatusCode.ERROR, _unfinished(run)),
        {
            "nodevet.run.id": run.id,
            "nodevet.run.state": run.state.value,
            "nodevet.run.series": run.series,
            "nodevet.run.hosts": run.hosts,
            "nodevet.run.visited": run.visited,
            **ended,
        },
        about,
    )
    for visit in visits:
        arrived = seconds_of(visit.arrived)
        if arrived is not None:
            yield _visit_span(run, visit, arrived, about)


def _unfinished(run: RecordedRun) -> str:
    return f"the run is {run.state.value}: {run.visited:,} of {run.hosts:,} hosts are recorded"


def _visit_span(
    run: RecordedRun, visit: RecordedVisit, arrived: float, about: Resource
) -> ReadableSpan:
    is_vetted = visit.status is VisitStatus.VETTED
    why = brief(visit.why, LONGEST) if visit.why else visit.status.value
    return _span(
        "nodevet visit",
        context_of(run.id, visit.host),
        context_of(run.id),
        (arrived - visit.seconds, arrived),
        Status(StatusCode.UNSET) if is_vetted else Status(StatusCode.ERROR, why),
        {
            "host.name": plain(visit.host),
            "nodevet.visit.status": visit.status.value,
            "nodevet.visit.outcome": visit.outcome.value,
            "nodevet.baseline": plain(visit.baseline),
        },
        about,
    )


def _span(
    name: str,
    context: SpanContext,
    parent: SpanContext | None,
    times: tuple[float, float],
    status: Status,
    attributes: Mapping[str, Any],
    about: Resource,
) -> ReadableSpan:
    start, end = (int(seconds * NANOSECONDS) for seconds in times)
    return ReadableSpan(
        name=name,
        context=context,
        parent=parent,
        resource=about,
        attributes=attributes,
        status=status,
        start_time=start,
        end_time=end,
        instrumentation_scope=SCOPE,
    )


def findings_of(
    run: RecordedRun, spans: Iterable[FindingSpan], at: Mapping[str, str], about: Resource
) -> Iterator[ReadableLogRecord]:
    """A record for each finding of the run that fails or is unknown, and for each host that was not
    vetted. `at`: the time at which each host answered, ISO 8601."""
    for span in spans:
        if span.verdict in TROUBLE and span.severity is not Severity.SHADOW:
            moment = seconds_of(at.get(span.host, "")) or seconds_of(run.started) or 0.0
            yield ReadableLogRecord(
                log_record=_record(run, span, int(moment * NANOSECONDS)),
                resource=about,
                instrumentation_scope=SCOPE,
            )


def _record(run: RecordedRun, span: FindingSpan, at: int) -> LogRecord:
    what = difference(span.finding)[0] if span.finding else brief(span.why, LONGEST)
    subject = span.finding.subject if span.finding else None
    check = plain(span.check or "visit")
    label = f" ({plain(subject.label)})" if subject and subject.label else ""
    number = SEVERITIES[span.severity] if span.verdict is Verdict.FAIL else SeverityNumber.WARN
    attributes = {
        "host.name": plain(span.host),
        "nodevet.run.id": run.id,
        "nodevet.check": check,
        "nodevet.verdict": span.verdict.value,
        "nodevet.severity": span.severity.value,
        "nodevet.subject.kind": plain(subject.kind) if subject else "",
        "nodevet.subject.id": plain(subject.stable_id) if subject else "",
        "nodevet.since": (span.since or span.first).at,
        "nodevet.new": (span.since or span.first).run == run.id,
    }
    return LogRecord(
        timestamp=at,
        observed_timestamp=at,
        context=set_span_in_context(NonRecordingSpan(context_of(run.id, span.host))),
        severity_text=number.name,
        severity_number=number,
        body=brief(f"{plain(span.host)}: {check}: {what}{label}", LONGEST),
        attributes={key: value for key, value in attributes.items() if value != ""},
        event_name="nodevet.finding",
    )
