"""Evidence says when it was read, reports say how old it is, and old evidence is unknown."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nodevet.base.age import age_refusal, instant
from nodevet.base.durations import coarse
from nodevet.base.errors import UserError
from nodevet.cli import nodevet as command_line
from nodevet.fleet import Options, Visit
from nodevet.model import Host, Status
from nodevet.vet.formats import formats, jsonl
from nodevet.vet.formats import json as report_json

CHECK = '''"""A check."""
from nodevet.model import Check, CheckParams, ok

def judge(evidence, params):
    yield ok()

CHECK = Check(params=CheckParams, reads=(), judge=judge)
'''
DAY = 86400.0
Call = Callable[..., Result]


def document(**host: Any) -> bytes:
    section = {"status": "ok", "seconds": 0, "data": host}
    return json.dumps({"schema": 1, "probe": "1", "sections": {"host": section}}).encode()


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in a project whose only check is always ok."""
    for folder, name, text in (
        ("checks", "fine.py", CHECK),
        ("baselines", "site.yaml", "nodevet: 1\nexpect: {fine: {}}\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, baseline: Sequence[str] = ("-b", "site")) -> Result:
        return CliRunner().invoke(command_line, [*arguments, *baseline], catch_exceptions=False)

    return run


def kept(host: str, *, age: float | None, **evidence: Any) -> None:
    """What `--save` wrote that many seconds ago; `age` None: by a nodevet that kept no time."""
    Path("kept").mkdir(exist_ok=True)
    saved = {
        "host": host,
        "status": "vetted",
        "evidence": json.loads(document(hostname=host, **evidence)),
    }
    if age is not None:
        saved["arrived"] = instant(time.time() - age)
    (Path("kept") / f"{host}.json").write_text(json.dumps(saved))


def test_d20_old_evidence_is_unknown_with_the_age_as_the_reason(call: Call) -> None:
    kept("gpu001", age=800 * DAY)
    done = call("check", "--evidence", "kept", "--advice")
    assert done.exit_code == 3
    assert "evidence_age  the evidence is 800 d old, of 20" in done.stdout
    assert "at most 7 d are allowed" in done.stdout
    assert "--max-age none" in done.stdout
    assert "evidence 800 d old" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("age", "clock", "options", "code"),
    [
        (6 * DAY, None, (), 0),
        (8 * DAY, None, (), 3),
        (8 * DAY, None, ("--max-age", "9d"), 0),
        (8 * DAY, None, ("--max-age", "none"), 0),
        (7200, None, ("--max-age", "90m"), 3),
        (None, None, (), 3),  # of unknown age
        (None, None, ("--max-age", "none"), 0),
        (None, 6 * DAY, (), 0),  # by the node's clock
        (None, 8 * DAY, (), 3),
        (DAY, 800 * DAY, (), 0),  # the controller's clock counts where it is known
        (-DAY, None, (), 3),  # in the future
        (-60, None, (), 0),
        (None, -DAY, (), 3),
        (None, -1e300, (), 3),
    ],
)
def test_d20_how_old_evidence_may_be(
    call: Call, age: float | None, clock: float | None, options: Sequence[str], code: int
) -> None:
    evidence = {} if clock is None else {"clock_s": time.time() - clock}
    kept("gpu001", age=age, **evidence)
    done = call("check", "--evidence", "kept", *options)
    assert done.exit_code == code, done.output


def test_d20_output_of_probe_has_the_nodes_clock(call: Call) -> None:
    Path("gpu001.json").write_bytes(document(clock_s=time.time() - 100 * DAY))
    assert call("check", "--evidence", "gpu001.json").exit_code == 3
    Path("gpu001.json").write_bytes(document(clock_s=time.time()))
    assert call("check", "--evidence", "gpu001.json").exit_code == 0
    Path("gpu001.json").write_bytes(document())
    done = call("check", "--evidence", "gpu001.json")
    assert (done.exit_code, "is not known" in done.stdout) == (3, True)


def test_d20_every_format_shows_the_age(call: Call) -> None:
    kept("gpu001", age=3 * DAY + 60)
    kept("gpu002", age=2 * DAY + 60)
    files = [f"--format={name}:{name}" for name in formats()]
    assert call("check", "--evidence", "kept", *files).exit_code == 0
    for name in ("table", "diff", "html", "markdown", "nagios"):
        assert "evidence 2 d to 3 d old" in Path(name).read_text(), name
    day = instant(time.time() - 3 * DAY - 60)[:10]
    for name in ("html", "json", "jsonl", "junit"):
        assert day in Path(name).read_text(), name
    assert 'evidence_timestamp_seconds{host="gpu001"}' in Path("prometheus").read_text()
    run = report_json.parse(Path("json").read_bytes())
    assert run.replayed
    streamed, _ = jsonl.parse(Path("jsonl").read_bytes())
    assert (streamed.replayed, streamed.hosts) == (True, run.hosts)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is a node that answers now."""

    def tour(hosts: Sequence[Host], options: Options, until: float) -> Iterator[Visit]:
        for host in hosts:
            evidence = document(hostname=host.name, clock_s=time.time() - 3600)
            yield Visit(host.name, Status.VETTED, "", evidence, 0.1)

    monkeypatch.setattr("nodevet.fleet.controller.dispatcher.dispatch", tour)


@pytest.mark.usefixtures("nodes")
def test_d20_saved_evidence_keeps_its_arrival_time(call: Call) -> None:
    before = time.time()
    live = call("check", "gpu001", "--save", "kept", "--format", "json")
    saved = json.loads(Path("kept/gpu001.json").read_text())
    assert instant(before) <= saved["arrived"] <= instant(time.time())
    again = call("check", "--evidence", "kept", "--format", "json")
    (one,), (other,) = (json.loads(done.stdout)["hosts"] for done in (live, again))
    assert one["arrived"] == other["arrived"] == saved["arrived"]
    assert one["clock"] == other["clock"]
    assert one["clock"] <= instant(before - 3590)
    assert "old" not in call("check", "gpu001").stdout  # what is visited now has no age


@pytest.mark.usefixtures("nodes")
def test_d20_evidence_of_hosts_that_left_the_inventory_is_reported(call: Call) -> None:
    Path("fleet.yaml").write_text("nodevet: 1\nhosts:\n  gpu[001-003]:\n")
    for host in ("gpu001", "gpu002", "gpu009"):
        kept(host, age=0)
    done = call("check", "--evidence", "kept", "-i", "fleet.yaml", "gpu[001,003]")
    assert done.exit_code == 3
    assert "left out, since not in the inventory: gpu009" in done.stderr
    assert "gpu002" not in done.output
    assert "PROBE FAILED" in done.stdout
    assert "no evidence of it is saved there" in done.stdout
    assert "1 ok, 1 probe failed" in done.stdout
    named = call("check", "--evidence", "kept", "gpu001")
    assert named.exit_code == 0
    assert "not among the hosts that are named: gpu[002,009]" in named.stderr
    done = call("check", "-i", "fleet.yaml", "gpu001", "--save", "kept")
    assert (done.exit_code, "gpu009; " in done.stderr, "gpu002" in done.stderr) == (0, True, False)


def test_d20_a_run_that_is_rendered_again_says_its_age(call: Call) -> None:
    kept("gpu001", age=0)
    call("check", "--evidence", "kept", "--format", "json:last.json")
    assert call("report", "last.json", baseline=()).stderr == ""
    text = Path("last.json").read_text()
    started = json.loads(text)["started"]
    Path("last.json").write_text(text.replace(started, "2024-05-01T10:00:00+00:00"))
    told = call("report", "last.json", baseline=()).stderr
    assert "last.json: the run is" in told
    assert "it was started at 2024-05-01T10:00:00+00:00" in told
    Path("last.json").write_text(text.replace(started, "2999-05-01T10:00:00+00:00"))
    assert "the run is of unknown age" in call("report", "last.json", baseline=()).stderr


def test_d20_ages_in_words() -> None:
    assert [coarse(s) for s in (0, 119, 120, 7200, 3 * 3600, 30 * 3600, 2 * DAY, 800 * DAY)] == [
        "0 s", "119 s", "2 min", "2 h", "3 h", "30 h", "2 d", "800 d",
    ]  # fmt: skip
    assert age_refusal("", "yesterday", now=0, most=DAY) == "the time of the evidence is not known"


@pytest.mark.parametrize("form", ["nagios", "npd", "nico"])
def test_an_old_run_is_not_reported_as_the_state_now(form: str, call: Call) -> None:
    """Who reads these formats takes them for a look at the hosts."""
    kept("gpu001", age=0)
    call("check", "--evidence", "kept", "--format", "json:last.json")
    fresh = call("report", "last.json", "--format", form, baseline=())
    assert fresh.exit_code == 0 and fresh.stdout
    saved = json.loads(Path("last.json").read_text())
    for started in ("2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00", "nonsense"):
        Path("last.json").write_text(json.dumps({**saved, "started": started}))
        for file in ("", ":now.txt"):
            with pytest.raises(UserError, match=f"{form} is the state of the hosts now"):
                call("report", "last.json", "--format", f"{form}{file}", baseline=())
        assert not Path("now.txt").exists()
        assert call("report", "last.json", "--format", "table", baseline=()).exit_code == 0
