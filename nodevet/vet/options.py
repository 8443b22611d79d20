"""Options of commands that reach hosts, judge them and report on them."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from nodevet.base.durations import duration_text
from nodevet.cli import completing
from nodevet.cli.durations import Duration
from nodevet.cli.help import Option, WholeNumber
from nodevet.cli.options import SEVERITIES, apply
from nodevet.vet.completing import formats as complete_formats
from nodevet.vet.defaults import CONNECT_TIMEOUT, DEADLINE, PARALLEL

narrowing = apply(
    click.option(
        "--only",
        multiple=True,
        metavar="CHECK",
        shell_complete=completing.checks,
        help="Judge only this check; may be repeated. Such a run is not recorded.",
    ),
    click.option(
        "--skip",
        multiple=True,
        metavar="CHECK",
        shell_complete=completing.checks,
        help="Leave this check out; may be repeated. Such a run is not recorded.",
    ),
)
"""For a quick look: the report says what was left out."""


_connection = partial(click.option, cls=Option, heading="Connection")


reach = apply(
    _connection(
        "--parallel",
        type=WholeNumber(),
        default=PARALLEL,
        show_default=True,
        help="Hosts to visit at the same time.",
    ),
    _connection(
        "--connect-timeout",
        type=Duration(0.1),
        default=duration_text(CONNECT_TIMEOUT),
        show_default=True,
        help="SSH connect timeout.",
    ),
    _connection(
        "--deadline",
        type=Duration(1),
        default=duration_text(DEADLINE),
        show_default=True,
        help="Total time limit per host.",
    ),
    _connection(
        "--ssh-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="SSH configuration file to use instead of ~/.ssh/config and /etc/ssh/ssh_config.",
    ),
    _connection(
        "--known-hosts",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Known hosts file to use instead of ~/.ssh/known_hosts.",
    ),
    _connection(
        "--accept-new",
        is_flag=True,
        help="Accept unknown host keys, but never a changed one.",
    ),
    _connection("--sudo", is_flag=True, help="Run the probe through `sudo -n`."),
    _connection(
        "--user",
        help="Log in as this user on hosts for which neither HOSTS nor the inventory names one.",
    ),
)


def _steps_printer(_: click.Context, __: click.Parameter, value: bool) -> Any:
    """A function that receives a host and its SSH steps, or None."""
    from nodevet.cli.speech import say

    def print_steps(host: str, steps: tuple[str, ...]) -> None:
        for step in steps:
            say(f"{host}: {step}")

    return print_steps if value else None


verbose = _connection(
    "-v",
    "--verbose",
    "on_steps",
    is_flag=True,
    callback=_steps_printer,
    help="Print what SSH did on each host, to standard error.",
)


run_limits = apply(
    _connection(
        "--second-try/--no-second-try",
        default=None,
        help="At the end, visit hosts again that were unreachable or timed out.  [default: from "
        "100 hosts on]",
    ),
    _connection(
        "--within",
        type=Duration(1, most=30 * 86400),
        help="Deadline of the whole run; hosts not done by then are reported as interrupted.",
    ),
)
"""How often hosts are tried, and when all of it ends."""


sample = click.option(
    "--sample",
    type=Duration(1, 1800),
    help="Read error counters twice, this long apart, and judge their growth.",
)


since = click.option(
    "--since",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Judge error counters and the kernel log by what came since this evidence: a file or "
    "folder of `check --save`, or `store` for the last recorded visit.",
)


expect_hostname = click.option(
    "--no-expect-hostname",
    "expect_hostname",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Accept a node whose hostname differs from its name in the inventory.",
)


def formats(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--format` and `--output`, as one argument `formats`."""

    @wraps(command)
    def with_formats(
        *args: Any, formats: tuple[str, ...], outputs: tuple[str, ...], **rest: Any
    ) -> Any:
        chosen = formats or (("table",) if outputs else ())
        return command(*args, formats=(*chosen, *map(_format_of, outputs)), **rest)

    return apply(
        click.option(
            "--format",
            "formats",
            multiple=True,
            metavar="NAME[:FILE]",
            shell_complete=complete_formats,
            help="Report format; may be repeated. `nodevet list formats` names them.  "
            "[default: table]",
        ),
        click.option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            metavar="FILE",
            help="Also write the report to FILE, in the format of its name: .html, .md, .json, "
            ".jsonl, .xml (JUnit), .prom, .diff or .txt; may be repeated.",
        ),
    )(with_formats)


def _format_of(file: str) -> str:
    """`html:report.html`. Raises click.UsageError for a name that does not say the format."""
    from nodevet.vet.formats import format_of_file

    name = format_of_file(file)
    if name is None:
        raise click.UsageError(
            f"-o {file}: its name does not say which format; use --format NAME:{file}"
        )
    return f"{name}:{file}"


everything = click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also show checks that passed, with their values, in tables, json and jsonl; without it, "
    "json and jsonl count them.",
)


shadow = click.option(
    "--shadow",
    is_flag=True,
    help="In a table and in Markdown, also show checks of severity shadow.",
)


def _refuse_previous(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--previous is gone: nodevet records runs, and reports say what is new or fixed, and "
            "since when; see --store"
        )


previous = click.option("--previous", hidden=True, expose_value=False, callback=_refuse_previous)


fail_on = click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    default="warning",
    show_default=True,
    help="Lowest severity of a failure that makes the exit code 1.",
)


fail_on_new = click.option(
    "--fail-on",
    type=click.Choice([*SEVERITIES, "new", *(f"new:{severity}" for severity in SEVERITIES)]),
    default="warning",
    show_default=True,
    metavar="SEVERITY|new[:SEVERITY]",
    help="Lowest severity of a failure that makes the exit code 1: info, warning or critical. "
    "new: only failures that began since the last recorded visit.",
)


def after_gate(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of features that act when a gate has ended, as one argument `after`."""
    from nodevet.base.features import feature_modules

    features = tuple(feature_modules("gating"))

    @wraps(command)
    def with_features(*args: Any, **values: Any) -> Any:
        from nodevet.vet.use.after_gate import AfterGates

        taken = [feature.take_options(values) for feature in features]
        after = AfterGates([part for part in taken if part is not None])
        return command(*args, after=after, **values)

    return apply(*(feature.options for feature in features))(with_features)
