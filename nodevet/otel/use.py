"""Send a recorded run to an OTLP collector over HTTP.

The endpoint, its headers and certificates come from the standard environment variables, such as
OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS, so nodevet.toml holds no secret.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nodevet.base.errors import UserError

if TYPE_CHECKING:
    from nodevet.store import Store

FINDINGS, TRACE = "findings", "trace"
AT_ONCE = 512  # records in one request
ENDPOINTS = {FINDINGS: "LOGS", TRACE: "TRACES"}
INSTALL = "OpenTelemetry is not installed; install it with: pip install 'nodevet[otel]'"
Item = TypeVar("Item")


class SentRun(msgspec.Struct, frozen=True, kw_only=True):
    """How much the collector accepted."""

    run: str
    spans: int = 0
    findings: int = 0


def send_run(
    store: "Store", ref: str, signals: Collection[str], series: str | None = None
) -> SentRun:
    """Send a run. `ref`: an id, `last` or a day; `series`: the name of its sweep. Raises StoreError
    if there is no such run, and UserError if the collector did not accept all of it."""
    require_endpoints(signals)
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from nodevet.otel import signals as made
    except ImportError:
        raise UserError(INSTALL) from None
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # it logs addresses
    run = store.run(ref, series=series)
    about = made.resource()
    spans = findings = 0
    if TRACE in signals:
        trace = made.trace_of(run, store.visits(run.id), about)
        spans = _export(OTLPSpanExporter(), trace, TRACE)
    if FINDINGS in signals:
        at = {visit.host: visit.arrived for visit in store.visits(run.id)}
        records = made.findings_of(run, store.spans(run=run.id), at, about)
        findings = _export(OTLPLogExporter(), records, FINDINGS)
    return SentRun(run=run.id, spans=spans, findings=findings)


def require_endpoints(signals: Iterable[str]) -> None:
    """Raises UserError if the environment has no address for a signal."""
    for signal in signals:
        own = f"OTEL_EXPORTER_OTLP_{ENDPOINTS[signal]}_ENDPOINT"
        if not os.environ.get(own) and not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            raise UserError(
                f"the environment has no address for {signal}: set OTEL_EXPORTER_OTLP_ENDPOINT, "
                f"or {own}"
            )


def _export(exporter: Any, items: Iterable[Any], signal: str) -> int:
    """The number of accepted items. Raises UserError at the first request that fails."""
    sent = 0
    try:
        for some in _pieces(items):
            if exporter.export(some).name != "SUCCESS":
                raise UserError(
                    f"the collector refused the {signal} or did not answer; "
                    f"records accepted before: {sent:,}"
                )
            sent += len(some)
    finally:
        exporter.shutdown()
    return sent


def _pieces(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    iterator = iter(items)
    while some := list(islice(iterator, AT_ONCE)):
        yield some
