"""docs/integrations/prometheus.md on a real Prometheus and a real Alertmanager: the rules, the
alerts that reach a webhook, and every query of the dashboard."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from free_ports import free_port
from node_tools import ROOT

from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run, RunNews
from nodevet.vet import formats
from nodevet.vet.use import heartbeat

pytestmark = pytest.mark.timeout(300)
REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "integrations" / "prometheus.md"
DASHBOARD = PAGE.with_name("nodevet.json")
CASES = Path(__file__).with_name("rules_test.yaml")
PROMETHEUS = ROOT / "prometheus/usr/bin/prometheus"
PROMTOOL = PROMETHEUS.with_name("promtool")
MANAGER = ROOT / "prometheus-alertmanager"
ALERTMANAGER = MANAGER / "usr/bin/prometheus-alertmanager"
BESIDE_TEMPLATES = [
    *("unshare", "--mount", "--propagation", "private", "sh", "-ec"),
    f'mount -t overlay -o ro,lowerdir={MANAGER}/usr/share:/usr/share x /usr/share; exec "$@"',
    "sh",
]
"""Alertmanager reads its templates where its package puts them."""
SECONDS = 120


def block(name: str) -> str:
    """The text of a file that the page shows."""
    text = PAGE.read_text().split(f"<!-- file: {name} -->\n```yaml\n")[1]
    return text.split("\n```")[0] + "\n"


def finding(check: str, severity: Severity, part: str) -> Finding:
    subject = Subject(kind="gpu", id=part, uuid=f"GPU-{part}")
    return Finding(verdict=Verdict.FAIL, check=check, subject=subject, severity=severity)


FAILS = HostReport(
    host="gpu001",
    status=Status.VETTED,
    findings=(
        finding("pcie_link", Severity.CRITICAL, "0"),
        finding("pcie_link", Severity.CRITICAL, "1"),
        finding("cpu_governor", Severity.WARNING, "2"),
    ),
)
GOOD = Finding(verdict=Verdict.OK, check="pcie_link")


def run_of(*reports: HostReport) -> str:
    hosts = tuple(
        HostReport(host=f"gpu{number:03}", status=Status.VETTED, findings=(GOOD,))
        for number in range(2, 60)
    )
    run = Run(
        id="1",
        nodevet="1",
        started="2026-01-31T02:30:00+00:00",
        seconds=1.0,
        baselines={"site": "1"},
        news=RunNews(since="2026-01-30T02:30:00+00:00"),
        hosts=(*reports, *hosts),
    )
    beat = {"end_timestamp_seconds": time.time(), "exit_code": 1.0}
    return formats.render("prometheus", run) + heartbeat.text({"nightly": beat})


@pytest.fixture(scope="module")
def tools() -> None:
    if not (PROMTOOL.exists() and ALERTMANAGER.exists()):
        pytest.skip(f"no Prometheus and Alertmanager in {ROOT}: .ci/node-tools unpacks them")


def promtool(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROMTOOL, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=60
    )


def test_promtool_accepts_the_metrics(tools: None) -> None:
    done = promtool("check", "metrics", stdin=run_of(FAILS))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_rules_alert_as_the_page_says(tools: None, tmp_path: Path) -> None:
    (tmp_path / "nodevet.rules.yaml").write_text(block("nodevet.rules.yaml"))
    (tmp_path / "cases.yaml").write_text(CASES.read_text())
    done = promtool("test", "rules", tmp_path / "cases.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load(block("nodevet.rules.yaml"))["groups"][0]["rules"]
    tried = {
        alert["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for alert in test["alert_rule_test"]
        if alert["exp_alerts"]
    }
    assert tried == {rule["alert"] for rule in rules}


def test_every_metric_of_the_rules_is_documented() -> None:
    known = (PAGE.parents[1] / "metrics.md").read_text()
    rules = yaml.safe_load(block("nodevet.rules.yaml"))["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"nodevet_\w+", rule["expr"])}
    assert len(asked) > 5
    assert [name for name in sorted(asked) if f"`{name}`" not in known] == []


class Site:
    """What node_exporter would serve, and what the webhook received."""

    def __init__(self) -> None:
        self.metrics = ""
        self.alerts: dict[tuple[str, str], dict[str, Any]] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(site.metrics.encode())

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in message["alerts"]:
                    labels = alert["labels"]
                    site.alerts[labels["alertname"], labels.get("check", "")] = alert
                self.answer(b"")

            def answer(self, text: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def running(words: list[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(list(map(str, words)), stdout=out, stderr=out, cwd=log.parent)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


def until(what: Callable[[], Any], log: Path) -> Any:
    """What it returns once that is true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-4000:])


class Server:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self.port = port

    def is_ready(self) -> bool:
        with suppress(OSError):
            return urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        return False

    def query(self, text: str) -> list[Any]:
        """The series that a query finds. Raises AssertionError if Prometheus refuses it."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?query={quote(text)}"
        try:
            with urlopen(url, timeout=10) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
        except HTTPError as error:
            raise AssertionError(f"{text}: {error.read().decode()}") from error
        return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    site.metrics = run_of(FAILS)
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture(scope="module")
def prometheus(
    tools: None, site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    port, manager = free_port(), free_port()
    rules = yaml.safe_load(block("nodevet.rules.yaml"))
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{site.port}"]}]}
        ],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager}"]}]}]
        },
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    routes = yaml.safe_load(block("alertmanager.yaml"))
    routes["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    hook = f"http://127.0.0.1:{site.port}/alerts"
    routes["receivers"][0]["webhook_configs"][0]["url"] = hook
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(routes))
    with ExitStack() as stack:
        log = folder / "prometheus.log"
        address = f"--web.listen-address=127.0.0.1:{manager}"
        words = [
            *BESIDE_TEMPLATES,
            ALERTMANAGER,
            "--config.file=alertmanager.yaml",
            "--storage.path=alerts",
            address,
        ]
        words += ["--cluster.listen-address=", f"--web.external-url=http://127.0.0.1:{manager}"]
        stack.enter_context(running(words, folder / "alertmanager.log"))
        words = [PROMETHEUS, "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
        words += [f"--web.listen-address=127.0.0.1:{port}"]
        stack.enter_context(running(words, log))
        server = Server(port)
        until(server.is_ready, log)
        until(lambda: server.query("nodevet_run_exit_code"), log)
        yield server


def test_every_query_of_the_dashboard_finds_something(prometheus: Server) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) >= len(panels) > 5
    silent = [query for query in queries if not prometheus.query(query)]
    assert silent == ["nodevet_check_since_timestamp_seconds * 1000"]  # nothing is recorded here


def test_an_alert_reaches_the_webhook_and_ends(prometheus: Server, site: Site) -> None:
    log = Path("/dev/null")
    alert = until(lambda: site.alerts.get(("NodevetFails", "pcie_link")), log)
    assert alert["status"] == "firing" and alert["labels"]["severity"] == "critical"
    assert alert["annotations"] == {
        "summary": "gpu001 fails pcie_link on 2 parts",
        "command": "nodevet history host gpu001",
    }
    assert until(lambda: site.alerts.get(("NodevetWarns", "cpu_governor")), log)
    good = HostReport(host="gpu001", status=Status.VETTED, findings=(GOOD,))
    site.metrics = run_of(good)
    until(lambda: site.alerts["NodevetFails", "pcie_link"]["status"] == "resolved", log)
