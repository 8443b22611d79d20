"""Who is told of what is new or fixed: over real HTTP, and what is never said."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from answering_fleet import AnsweringFleet, capped

from nodevet.base.errors import UserError
from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Ended, Run, RunNews, StandingTrouble, Suspicion
from nodevet.vet.use.notify import NewsFilter, addresses, message

pytestmark = pytest.mark.timeout(300)
HOSTILE = "x\x1b[31m\n@everyone <b>"


class Inbox:
    """What was posted to a server on loopback."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.code = 200
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                inbox.taken.append(json.loads(self.rfile.read(size)))
                self.send_response(inbox.code)
                if inbox.code == HTTPStatus.FOUND:
                    self.send_header("Location", "/login")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(HTTPStatus.OK)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://bot:s3cr3t@127.0.0.1:{self.server.server_port}/tok3n"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()
    thread = threading.Thread(target=box.server.serve_forever)
    thread.start()
    yield box
    box.server.shutdown()
    thread.join()
    box.server.server_close()


def test_nights_are_reported_if_something_changed(fleet: AnsweringFleet, inbox: Inbox) -> None:
    (fleet.folder / "people").write_text(f"# the pager\n{inbox.url}\n")
    told = 'urls = ["file:people", "env:PAGER"]\nlink = "https://reports.example/last"\n'
    fleet.settings('outputs = { json = "last.json" }\n', head=f"[notify]\n{told}")
    pager = {"PAGER": inbox.url}
    assert fleet.run("sweep").stderr == "nodevet: notify: the environment has no PAGER\n"
    assert fleet.run("sweep", **pager).returncode == 0
    assert inbox.taken == []  # all well
    fleet.night({"gpu002": capped, "gpu003": capped}, gone=["gpu006"])
    fleet.run("sweep", **pager)
    first, second = inbox.taken
    assert first == second
    assert first["title"] == "nodevet nightly: 2 new"
    assert first["message"].splitlines() == [
        "NEW FAIL power_limit 490 W, expected 700 W gpu[002-003] 16 GPUs",
        "NEW PROBE FAILED command on the node exited with 1: no answer gpu006",
        "6 hosts: 3 ok, 2 fail, 1 probe failed",
        "https://reports.example/last",
    ]
    inbox.taken.clear()
    fleet.run("sweep", **pager)
    assert inbox.taken == []  # nothing is new
    fleet.night()
    inbox.code = 500
    done = fleet.run("sweep", **pager)
    assert inbox.taken[0]["title"] == "nodevet nightly: 2 fixed"
    assert done.returncode == 0
    assert "fixed: 16" in done.stdout
    assert "could not notify 1 (json)" in done.stderr
    assert len(json.loads((fleet.folder / "last.json").read_text())["news"]["not_notified"]) == 2
    written = [path.read_text(errors="replace") for path in fleet.folder.glob("*.json")]
    assert not [text for text in (done.stdout, done.stderr, *written) if "s3cr3t" in text]
    assert not [text for text in (done.stdout, done.stderr, *written) if "tok3n" in text]


def run_of(number: int, **news: Any) -> Run:
    hosts = []
    for each in range(number):
        finding = Finding(
            verdict=Verdict.FAIL,
            check=HOSTILE,
            subject=Subject(kind=HOSTILE, id=HOSTILE),
            expected=f"{each:05d} {HOSTILE}",
            actual=HOSTILE * each,
        )
        hosts.append(HostReport(host=f"h{each}", status=Status.VETTED, findings=(finding,)))
    standing = tuple(
        StandingTrouble(
            host=host.host, place=0, check=HOSTILE, new=True, since="2026-11-22T02:00:00Z"
        )
        for host in hosts
    )
    told = {"since": "2026-11-21T02:00:00Z", "standing": standing} | news
    return Run(
        id="r",
        nodevet="0",
        started="2026-11-22T02:00:00Z",
        seconds=1,
        hosts=tuple(hosts),
        news=RunNews(**told),
    )


def test_text_of_nodes_in_a_message_is_limited_and_printable() -> None:
    told = message(run_of(300), "nightly", NewsFilter(length=1000))
    assert told is not None
    assert len(told.body) <= 1000
    assert all(line.isprintable() for line in told.body.splitlines())
    assert told.body.splitlines()[-1] == "300 hosts: 300 fail"


def test_a_suspicion_is_one_line_of_the_message() -> None:
    suspicion = Suspicion(checks=(HOSTILE,), hosts=("h0", "h1"), judged=300)
    told = message(run_of(300, suspicions=(suspicion,)), "nightly", NewsFilter())
    assert told is not None
    assert told.title == "nodevet nightly: SUSPICIOUS"
    assert len(told.body.splitlines()) == 2


def test_a_message_has_only_the_news_that_its_filter_requests() -> None:
    run = run_of(2)
    assert message(run, "n", NewsFilter(new=False)) is None
    ended = (Ended(host="h1", check="c", severity=Severity.INFO),)
    quiet = run_of(2, standing=(), ended=ended)
    assert message(quiet, "n", NewsFilter()) is None
    assert message(quiet, "n", NewsFilter(severity=Severity.INFO)) is not None


@pytest.mark.parametrize("urls", [("no-url",), ("file:none",), ("env:NODEVET_NO_SUCH",)])
def test_addresses_that_cannot_be_used(urls: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="notify: "):
        addresses(urls, tmp_path)


def test_a_message_that_ends_at_a_login_page_was_not_sent(
    fleet: AnsweringFleet, inbox: Inbox
) -> None:
    fleet.settings(head=f'[notify]\nurls = ["{inbox.url}"]\n')
    fleet.run("sweep")
    fleet.night({"gpu002": capped})
    inbox.code = HTTPStatus.FOUND
    done = fleet.run("sweep")
    assert (len(inbox.taken), done.returncode) == (1, 1)
    assert "could not notify 1 (json): it was not accepted" in done.stderr


ENDLESS = """
import os, socket, threading
from nodevet.vet.use import notify

def answer() -> None:
    connection, _ = listener.accept()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nX: ")
    while not over.wait(0.2):
        connection.sendall(b".")

listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()
threading.Thread(target=answer, daemon=True).start()
notify.SECONDS = 5.0
address = f"json://127.0.0.1:{listener.getsockname()[1]}/tok3n"
print(notify.notify([address], notify.Notice(title="nightly", body="1 new")))
"""


def test_a_notification_server_that_never_answers_does_not_hold_up_a_sweep() -> None:
    """Apprise gives up, but its threads do not: Python would wait for them at the end."""
    words = [sys.executable, "-c", ENDLESS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    told = "('1 (json): not done within 5 s',)\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
