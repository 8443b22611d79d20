"""`nodevet otel`: send a recorded run to an OpenTelemetry collector."""

from pathlib import Path

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command

SIGNALS = ("findings", "trace")


@click.command(
    "otel",
    cls=Command,
    group="History",
    order=11,
    examples=(
        ("The last run", "nodevet otel last"),
        ("Only its findings", "nodevet otel last --send findings"),
    ),
)
@click.argument("run", default="last")
@click.option(
    "--send",
    "signals",
    type=click.Choice(SIGNALS),
    multiple=True,
    help="Send only this signal; may be repeated.  [default: both]",
)
@options.store_option("The store of the run: sqlite:///PATH or postgresql://USER@HOST/DB.")
@sheets.formats()
@display_options()
def command(
    run: str,
    signals: tuple[str, ...],
    store: str | None,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Send a recorded RUN to an OpenTelemetry collector.

    nodevet sends a trace with a span for each host, and a log record for each finding that fails or
    is unknown. RUN is an id or its beginning, `last`, `last~1`, or a day. The environment names the
    collector: OTEL_EXPORTER_OTLP_ENDPOINT and the other standard variables. To send each sweep,
    write `[otel]` into nodevet.toml.

    \b
    Exit codes:
      0  sent
      2  usage or configuration error, no such run, or the collector refused it
    """
    from nodevet.otel.sheet import sent_sheet
    from nodevet.otel.use import send_run
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        sent = send_run(history, run, signals or SIGNALS)
    sheets.show(sent, sent_sheet(sent), form, display)
