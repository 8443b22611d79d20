"""Some checks instead of all: the report says so, and nothing else is concluded from it."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodevet.base.age import instant
from nodevet.base.errors import UserError
from nodevet.cli import nodevet as command_line

Call = Callable[..., Result]
CHECK = '''"""A check."""
from nodevet.model import Check, CheckParams, fail, ok

def judge(evidence, params):
    yield {verdict}

CHECK = Check(params=CheckParams, reads=(), judge=judge)
'''


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in a project with a check that is ok, one that fails, and saved evidence."""
    monkeypatch.chdir(tmp_path)
    for folder in ("checks", "baselines", "kept"):
        Path(folder).mkdir()
    Path("checks/fine.py").write_text(CHECK.format(verdict="ok()"))
    Path("checks/broken.py").write_text(CHECK.format(verdict="fail(expected=1, actual=2)"))
    Path("baselines/site.yaml").write_text("nodevet: 1\nexpect: {fine: {}, broken: {}}\n")
    Path("baselines/other.yaml").write_text(
        "nodevet: 1\napplies: {hosts: gpu2}\nexpect: {fine: {}}\n"
    )
    section = {"status": "ok", "seconds": 0, "data": {"hostname": "gpu1"}}
    evidence = {"schema": 1, "probe": "1", "sections": {"host": section}}
    saved = {
        "host": "gpu1",
        "status": "vetted",
        "arrived": instant(time.time()),
        "evidence": evidence,
    }
    Path("kept/gpu1.json").write_text(json.dumps(saved))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(command_line, [*arguments], catch_exceptions=False)

    return run


def test_only_judges_the_named_check_and_the_report_says_so(call: Call) -> None:
    asked = ("check", "--evidence", "kept", "-b", "site")
    assert call(*asked).exit_code == 1
    for option in (("--only", "fine"), ("--skip", "broken")):
        done = call(*asked, *option)
        assert done.exit_code == 0
        assert "All ok" not in done.output and "Ok as far as judged: 1 host" in done.output
    assert "only fine judged" in call(*asked, "--only", "fine").output
    assert "broken not judged" in call(*asked, "--skip", "broken").output
    assert call(*asked, "--only", "broken").exit_code == 1


@pytest.mark.parametrize("form", ["json", "jsonl", "markdown", "html"])
def test_every_format_and_a_rendered_run_say_that_only_some_checks_were_judged(
    call: Call, form: str
) -> None:
    done = call("check", "--evidence", "kept", "-b", "site", "--only", "fine", "--format", form)
    told = '"only":["fine"]' if "json" in form else "only fine judged"
    assert told in done.output.replace(" ", "").replace("\n", "") or told in done.output
    if "json" in form:
        Path("run.json").write_text(done.output)
        assert "only fine judged" in call("report", "run.json").output


def test_a_host_whose_baseline_has_none_of_the_selected_checks_is_unknown(call: Call) -> None:
    Path("baselines/site.yaml").write_text(
        "nodevet: 1\napplies: {hosts: gpu1}\nexpect: {broken: {}}\n"
    )
    done = call("check", "--evidence", "kept", "-b", "site", "-b", "other", "--only", "fine")
    assert done.exit_code == 3
    assert "nothing was judged: no expectations" in done.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--only", "finer"), "--only finer: no baseline here expects this check"),
        (("--skip", "finer"), "did you mean fine?"),
        (("--only", "fine", "--skip", "fine"), "leave no check"),
    ],
)
def test_only_and_skip_that_select_no_check_are_refused(
    call: Call, options: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        call("check", "--evidence", "kept", "-b", "site", *options)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        ("--store", "sqlite:///a.sqlite"),
        ("--resume",),
        ("--fail-on", "new"),
        ("--since", "store"),
    ],
)
def test_only_is_refused_with_options_that_need_a_recorded_run(
    call: Call, options: tuple[str, ...]
) -> None:
    with pytest.raises(UserError, match="with --only or --skip: nothing is recorded"):
        call("check", "@local", "-b", "site", "--only", "fine", *options)
