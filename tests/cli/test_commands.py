"""The smaller commands."""

import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from nodevet import __version__, cli
from nodevet.author.use import listing
from nodevet.base import age
from nodevet.baseline.choose import CHECK
from nodevet.checking import identity
from nodevet.cli import options
from nodevet.cli.found import grouped_names, modules
from nodevet.cli.help import GROUPS, Command
from nodevet.fix.commands import plan
from nodevet.fix.journal import journal
from nodevet.fix.journal.journal import JournalRecord
from nodevet.fix.model import Plan, PlannedNode
from nodevet.fix.plan.plan_file import digest, write
from nodevet.fixing.model import Risk
from nodevet.model import Severity
from nodevet_sim.cli import command as simulator

pytestmark = pytest.mark.timeout(600)  # nodes are booted first
Run = Callable[..., subprocess.CompletedProcess[str]]


COMMANDS = tuple(sorted([*modules(), "sim"]))


@pytest.mark.parametrize("command", COMMANDS)
def test_help(nodevet: Run, command: str) -> None:
    done = nodevet(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")


def test_the_list_of_commands_is_complete(nodevet: Run) -> None:
    text = nodevet("--help").stdout
    for group in GROUPS:
        assert f"\n{group}:\n" in text
    listed = text.split("\nVet:\n")[1].split("\nOptions:\n")[0].splitlines()
    shown = {line.split()[0] for line in listed if line.startswith("  ")}
    assert shown == {*COMMANDS} - grouped_names() - {"probe"} | {"runs", "diff"}
    members = nodevet("history", "--help").stdout.split("\nCommands:\n")[1].split("\n\n")[0]
    assert {line.split()[0] for line in members.splitlines()} == grouped_names()


def test_history_takes_a_word_that_is_not_a_subcommand_as_a_host(
    nodevet: Run, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/none.sqlite"
    told = {
        nodevet("history", *words, "gpu003", "--store", store).stderr for words in ((), ("host",))
    }
    (said,) = told
    assert "no run has been recorded in" in said
    assert nodevet("history", "trend", "--help").stdout.startswith("Usage: nodevet history trend ")
    assert nodevet("trend", "--help").stdout.startswith("Usage: nodevet trend ")


def test_version_prints_the_versions_of_nodevet_and_its_dependencies(nodevet: Run) -> None:
    told = dict(line.split(maxsplit=1) for line in nodevet("version").stdout.splitlines())
    assert told == json.loads(nodevet("version", "--format", "json").stdout)
    assert told["nodevet"] == __version__ == nodevet("--version").stdout.split()[-1]
    assert told["pyinfra"] == metadata.version("pyinfra")
    assert told["pynvml"] == metadata.version("nvidia-ml-py")
    assert told["python"] == platform.python_version()
    assert {"nodevet-sim", "executable", "platform"} <= set(told)


def test_option_choices_equal_the_severities_and_risks_of_the_model() -> None:
    assert list(options.SEVERITIES) == [each.value for each in Severity][1:]  # not shadow
    assert list(plan.RISKS) == [risk.value for risk in Risk]


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_no_heavy_packages(arguments: list[str]) -> None:
    code = (
        "import sys; from nodevet.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0
    assert {"pydantic", "msgspec", "yaml", "gevent"}.isdisjoint(done.stderr.split())


def test_nodevet_without_a_command_prints_the_help(nodevet: Run) -> None:
    alone, asked = nodevet(), nodevet("--help")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == asked.stdout
    assert nodevet("sim").returncode == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("chekc", "no such command 'chekc'; did you mean check?"),
        ("aply", "no such command 'aply'; did you mean apply?"),
        ("xyzzy", "no such command 'xyzzy'; see: nodevet --help"),
        ("sim scenario", "no such command 'scenario'; did you mean scenarios?"),
        ("check --formt x", "no such option '--formt'; did you mean --format?"),
        ("check --xyzzy", "no such option '--xyzzy'; see: nodevet check --help"),
        (
            "check --fail-on warn",
            "Invalid value for '--fail-on': 'warn' is not one of info, warning, critical, new, "
            "new:info, new:warning, new:critical; "
            "did you mean warning?",
        ),
        ("plan --max-risk high", "'high' is not one of live, idle, drain, reboot"),
        ("list baseline", "did you mean baselines?"),
    ],
)
def test_a_misspelt_word_is_recognised(nodevet: Run, line: str, said: str) -> None:
    done = nodevet(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{said}\n")


def test_list(nodevet: Run, reach: list[str]) -> None:
    assert "pcie_link" in nodevet("list", "checks").stdout
    assert "nvidia-h100-sxm" in nodevet("list", "baselines").stdout
    assert "html" in nodevet("list", "formats").stdout.split()
    listed = nodevet("list", "hosts", *reach[:2], "--limit", "gpu[1-2]")
    assert listed.stdout.split() == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("checks", {"name": "swap", "severity": "warning", "area": "memory"}),
        ("fixes", {"name": "power_limit", "risk": "live"}),
        ("baselines", {"name": "generic", "title": "Any node with NVIDIA GPUs"}),
        ("formats", {"name": "junit"}),
        ("sources", {"name": "fleet_yaml", "about": "YAML (.yaml)"}),
        ("sections", {"name": "sysctl"}),
        ("resources", {"name": "file"}),
    ],
)
def test_list_describes_each_entry(nodevet: Run, kind: str, row: dict[str, str]) -> None:
    found = json.loads(nodevet("list", kind, "--format", "json").stdout)
    (mine,) = (each for each in found if each["name"] == row["name"])
    assert row.items() <= mine.items()
    lines = nodevet("list", kind).stdout.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == [each["name"] for each in found]
    for line, each in zip(lines, found, strict=True):
        told = [text for text in each.values() if isinstance(text, str)]
        assert all(text and text in line for text in told), each


def test_list_says_what_a_baseline_leaves_out_and_why(nodevet: Run) -> None:
    found = json.loads(nodevet("list", "baselines", "--format", "json").stdout)
    left = {each["name"]: each["left_out"] for each in found}
    assert "swap" in left["generic"]
    assert "swap" not in left["nvidia-h100-sxm"]
    assert all(why for each in left.values() for why in each.values())
    below = nodevet("list", "baselines").stdout.split("\n\n")[1]
    assert "\nkernel " in below


def test_list_shows_a_check_that_cannot_be_used(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/mine.py").write_text("import nosuch\n")
    done = nodevet("list", "checks", cwd=tmp_path)
    assert done.returncode == 0
    assert "cannot be used: checks/mine.py:1: ModuleNotFoundError" in done.stdout


def test_lint_finds_nothing_in_the_shipped_baselines(nodevet: Run) -> None:
    done = nodevet("lint")
    assert (done.returncode, done.stdout) == (0, "")
    assert "0 errors, 0 warnings" in done.stderr


def test_lint_exits_2_on_errors_and_with_strict_on_warnings(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    path = tmp_path / "baselines" / "mine.yaml"
    path.write_text("nodevet: 1\nexpect: {persistence_mode: true}\n")
    loose = nodevet("lint", cwd=tmp_path)
    assert loose.returncode == 0
    assert "add gpu_count" in loose.stdout
    assert nodevet("lint", "--strict", cwd=tmp_path).returncode == 2
    path.write_text("nodevet: 1\nexpect: {persistence_mode: on}\n")
    wrong = nodevet("lint", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "mine.yaml:2:" in wrong.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_cuts_no_summary_short(command: str) -> None:
    done = CliRunner().invoke(cli.nodevet, [*command.split(), "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert [line for line in done.output.splitlines() if len(line) > 80] == []
    summaries = done.output.partition("\nVet:\n")[2].splitlines()
    assert [line for line in summaries if line.endswith("...")] == []


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and the words that are left for it."""
    asked: click.Command = cli.nodevet
    while isinstance(asked, click.Group) and words:
        inner = asked.get_command(click.Context(asked), words[0])
        assert inner is not None, words
        asked, words = inner, words[1:]
    return asked, words


SIMULATOR = [f"sim {name}" for name in simulator.list_commands(click.Context(simulator))]


@pytest.mark.parametrize("name", [name for name in (*COMMANDS, *SIMULATOR) if name != "sim"])
def test_examples_in_the_help_are_valid_command_lines(name: str) -> None:
    command, _ = found(name.split())
    assert isinstance(command, Command) and command.examples
    for _, lines in command.examples:
        for line in lines.replace("\\\n", "").splitlines():
            typed = re.sub(r"^sudo |^eval \"\$\(|\)\"$| > .*", "", line)
            program, *words = shlex.split(typed)
            assert program == "nodevet"
            asked, words = found(words)
            _, rest, _ = asked.make_parser(
                click.Context(asked, **asked.context_settings)
            ).parse_args(words)
            assert rest == [], typed
    shown = command.get_help(click.Context(command, info_name=name))
    assert f"\nExamples:\n  # {command.examples[0][0]}\n" in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_the_help_of_list_says_what_each_kind_is(nodevet: Run) -> None:
    told = nodevet("list", "--help").stdout
    for kind in (*listing.KINDS, "hosts"):
        assert f"\n    {kind} " in told
    assert nodevet("list", "checks", "gpu001").returncode == 2


def test_explain_shows_what_a_baseline_may_say(nodevet: Run) -> None:
    text = nodevet("explain", "power_limit").stdout
    assert "\n    power_limit: {watts: 700, tolerance: 1%}\n" in text
    assert "\n- watts: number or default; required; a plain value fills it\n" in text
    assert "\n- tolerance: text or number; default 0. In percent of" in text
    assert "**Severity** critical" in text
    assert "Fix available, at risk live" in text
    assert "It takes no fields." in nodevet("explain", "gpu_lost").stdout


def test_explain_prints_the_page(nodevet: Run) -> None:
    done = nodevet("explain", "persistence_mode")
    assert done.returncode == 0
    assert done.stdout.startswith("Every GPU has persistence mode on or off")


@pytest.mark.parametrize("check", ["power_limit", "persistence_mode", "xid"])
def test_explain_fits_the_terminal(check: str) -> None:
    def told(columns: str) -> str:
        ran = CliRunner().invoke(cli.nodevet, ["explain", check], env={"COLUMNS": columns})
        return ran.output

    written, narrow = told("100"), told("80")
    assert max(map(len, written.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == written.split()


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (identity.SAME_MACHINE, "Each name of a run leads to a different machine.\n"),
        (identity.HOSTNAME, "The node's hostname is its name in the inventory.\n"),
        (age.CHECK, "The evidence is recent enough to be judged.\n"),
        (CHECK, "Exactly one baseline fits the node, which is judged by it.\n"),
    ],
)
def test_d4_d20_explain_describes_checks_that_every_run_makes(
    nodevet: Run, name: str, title: str
) -> None:
    done = nodevet("explain", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(title)
    for part in ("Why it matters", "Read from", "Verdicts", "To fix it"):
        assert f"\n**{part}" in done.stdout, part


def test_explain_names_the_line_that_sets_each_param(nodevet: Run, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "nodevet: 1\nextends: nvidia-h100-sxm\nexpect:\n  power_limit: {watts: 600}\n"
        "severity: {power_limit: info}\n"
    )
    done = nodevet("explain", "power_limit", "-b", path)
    assert done.stderr == ""
    expected = done.stdout.split("expects:")[1]
    assert "watts: 600" in expected
    assert f"{path}:4" in expected
    assert "overridden" in expected
    assert "severity: info" in expected


def test_explain_for_a_host_asks_the_host_which_baseline_is_its_own(
    nodevet: Run, reach: list[str]
) -> None:
    done = nodevet("explain", "gpu_model", "--host", "gpu1", *reach)
    assert done.returncode == 0
    assert "nvidia-h100-sxm" in done.stdout
    assert "10de:2330" in done.stdout
    gone = nodevet("explain", "gpu_model", "--host", "gpu4", *reach)
    assert gone.returncode == 2
    assert "connection refused" in gone.stderr


def test_explain_says_which_shipped_baseline_stands_in(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    (tmp_path / "baselines").mkdir()
    text = "nodevet: 1\nextends: nvidia-a100-sxm-80\n"
    (tmp_path / "baselines/site.yaml").write_text(text)
    done = nodevet("explain", "gpu_model", "--host", "gpu1", *reach, cwd=tmp_path)
    assert done.returncode == 0
    assert "site does not fit: the GPUs are 8 × " in done.stderr
    assert "until then judged by the shipped nvidia-h100-sxm" in done.stderr
    assert "nvidia-h100-sxm (" in done.stdout


def test_schema_knows_the_checks_of_the_project(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "site_rule.py").write_text(
        '"""A rule of this site."""\n'
        "from nodevet.model import Check, CheckParams\n"
        "CHECK = Check(params=CheckParams, reads=(), judge=lambda evidence, params: iter(()))\n"
    )
    done = nodevet("schema", cwd=tmp_path)
    known = json.loads(done.stdout)["properties"]["expect"]["properties"]
    assert {"site_rule", "pcie_link"} <= set(known)


def test_probe_of_a_recorded_machine(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    document = json.loads(nodevet("probe", "--root", tmp_path, "host").stdout)
    assert document["sections"]["host"]["data"]["machine_id"] == "0123456789abcdef0123456789abcdef"
    assert document["sections"]["host"]["data"]["boot_id"] is None
    assert list(document["sections"]) == ["host"]


PLAN = Plan(
    id="p1a2b3c4",
    author="ann",
    created="2026-01-02T03:04:05+00:00",
    expires="2026-01-03T03:04:05+00:00",
    baselines={"b": "1" * 64},
    nodes={"gpu1": PlannedNode(machine_id="m", boot_id="b", baseline="b")},
    steps=(),
)


def fixes_run(folder: Path, *records: JournalRecord) -> None:
    """The folder of a run of fixes on gpu1, which ended well by what its result says."""
    text = write(PLAN)
    opened = journal.RunBegin(plan=digest(text), path="plan.json", controller="c", pid=1)
    with journal.Journal.create(folder) as written:
        (folder / "plan.json").write_bytes(text)
        for record in (opened, *records):
            written.write(record)
    (folder / "result.json").write_text('{"hosts": [{"host": "gpu1", "outcome": "changed"}]}')


def test_report_renders_a_run_of_fixes(nodevet: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    doubt = journal.HostEnd(host="gpu1", outcome="unknown")
    fixes_run(run, doubt, journal.RunEnd(outcome="3"))
    done = nodevet("report", run, "--format", "table", "--format", f"junit:{tmp_path}/x.xml")
    assert done.returncode == 3 and done.stdout.startswith("UNKNOWN  gpu1\n"), done
    assert 'name="gpu1"' in (tmp_path / "x.xml").read_text()
    plugin = nodevet("report", run, "--format", "nagios")
    assert plugin.returncode == 2 and plugin.stdout.startswith(
        "NODEVET CRITICAL - apply p1a2b3c4: "
    )


def test_report_refuses_a_folder_that_is_not_a_usable_fix_run(nodevet: Run, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.write_text("")
    empty, began, other = tmp_path / "empty", tmp_path / "began", tmp_path / "other"
    empty.mkdir()
    fixes_run(began)
    (began / "journal.jsonl").write_bytes(b"")
    fixes_run(other)
    (other / "plan.json").write_bytes(write(replace(PLAN, author="bob")))
    for words, said in (
        ((empty,), "the folder of a run?"),
        ((began,), "the run ended before it started, and changed no node: apply the plan again"),
        ((other,), "plan.json: was changed since the run began"),
    ):
        done = nodevet("report", *words)
        assert done.returncode == 2 and said in done.stderr, done
        assert "Traceback" not in done.stderr


def test_explain_with_a_missing_baseline_prints_only_the_error(nodevet: Run) -> None:
    done = nodevet("explain", "power_limit", "-b", "nosuch.yaml")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nosuch.yaml: there is no such file" in done.stderr
