"""A run of the five nights, sent to an HTTP server that decodes OTLP as a collector does."""

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import StatusCode

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.otel.after_run import act
from nodevet.otel.signals import resource, trace_of
from nodevet.settings import SiteSettings
from nodevet.settings.model import OtelSettings, Settings, SweepSettings
from nodevet.store import open_store
from nodevet.store.records.model import RunState
from nodevet.vet.use.sweep_order import SweepOrder

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/logs": ExportLogsServiceRequest}
LAST = "last"  # night
Say = Callable[..., str]


class Collector(BaseHTTPRequestHandler):
    """Keeps what it gets on the server, and answers with the server's code."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = KINDS[self.path]()
        request.ParseFromString(body)
        self.server.got.append((self.path, dict(self.headers), request))
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.got, server.code = [], 200
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=s3cret")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes(item: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in item.attributes
    }


def spans_in(server: Any) -> list[Any]:
    requests = [request for path, _, request in server.got if path == "/v1/traces"]
    return [
        span
        for request in requests
        for one in request.resource_spans
        for scope in one.scope_spans
        for span in scope.spans
    ]


def records_in(server: Any) -> list[Any]:
    requests = [request for path, _, request in server.got if path == "/v1/logs"]
    return [
        record
        for request in requests
        for one in request.resource_logs
        for scope in one.scope_logs
        for record in scope.log_records
    ]


def test_a_run_is_a_trace_and_its_findings_are_log_records(
    say: Say, collector: Any, remembered: str
) -> None:
    said = say("otel", "last")
    root, *visits = spans_in(collector)
    records = records_in(collector)
    assert f"sent {len(visits) + 1} spans and {len(records)} findings of run" in said
    with open_store(remembered, create=False) as store:
        run = store.run(LAST)
        hosts = {visit.host for visit in store.visits(run.id) if visit.arrived}
    assert attributes(root)["nodevet.run.id"] == run.id and not root.parent_span_id
    assert {attributes(one)["host.name"] for one in visits} == hosts
    for one in visits:
        assert (one.trace_id, one.parent_span_id) == (root.trace_id, root.span_id)
        is_lost = attributes(one)["nodevet.visit.status"] != "vetted"
        assert (one.status.code == one.status.STATUS_CODE_ERROR) == is_lost
        assert one.start_time_unix_nano < one.end_time_unix_nano
    port = next(one for one in records if attributes(one)["host.name"] == "gpu009")
    assert attributes(port)["nodevet.check"] == "infiniband" and attributes(port)["nodevet.new"]
    assert port.body.string_value.startswith("gpu009: infiniband: state: DOWN (Polling)")
    assert port.event_name == "nodevet.finding" and port.trace_id == root.trace_id
    assert port.span_id in {one.span_id for one in visits}
    assert all(headers["x-token"] == "s3cret" for _, headers, _ in collector.got)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.INCOMPLETE])
def test_the_trace_of_an_unfinished_run_has_an_error_status(
    state: RunState, remembered: str
) -> None:
    with open_store(remembered, create=False) as store:
        run = store.run(LAST)
    (whole,) = trace_of(run, (), resource())
    assert whole.attributes is not None
    assert (whole.status.status_code, whole.attributes["nodevet.run.state"]) == (
        StatusCode.UNSET,
        "complete",
    )
    (root,) = trace_of(msgspec.structs.replace(run, state=state, exit_code=None), (), resource())
    assert root.status.status_code is StatusCode.ERROR and root.status.description
    assert root.attributes is not None and root.attributes["nodevet.run.state"] == state.value
    assert "nodevet.run.exit_code" not in root.attributes


def test_only_what_is_asked_for_is_sent(say: Say, collector: Any) -> None:
    say("otel", "last", "--send", "findings")
    assert {path for path, _, _ in collector.got} == {"/v1/logs"}


def order_of(store: str, *signals: Any) -> SweepOrder:
    settings = Settings(otel=OtelSettings(send=signals))
    return SweepOrder(
        name="nightly",
        site=SiteSettings(settings=settings),
        settings=SweepSettings(hosts=("gpu001",)),
        project=Project(Path()),
        store=store,
    )


def test_a_collector_that_refuses_costs_a_sweep_only_a_warning(
    collector: Any, remembered: str
) -> None:
    assert act(order_of(remembered)) == "" and collector.got == []
    assert act(order_of(remembered, "trace")) == "" and spans_in(collector)
    collector.code = 400
    why = act(order_of(remembered, "findings"))
    assert why == (
        "OpenTelemetry: the collector refused the findings or did not answer; "
        "records accepted before: 0"
    )
    assert "127.0.0.1" not in why and "s3cret" not in why


def test_without_an_address_nothing_is_sent(
    say: Say, remembered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(UserError, match="set OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL"):
        say("otel", "last")
    assert "no address for trace" in act(order_of(remembered, "trace"))
