"""A run of fixes as JSON lines: the run, one line per host, the totals."""

from typing import TYPE_CHECKING

import msgspec

from nodevet.fix import result_text
from nodevet.sheet.json import encode

if TYPE_CHECKING:
    from nodevet.fixing.result import Result
    from nodevet.resource import Contents

ENDING = ".jsonl"


def render(result: "Result", contents: "Contents") -> str:
    hosts = [host.host for host in result.hosts]
    totals = {
        "seconds": result.seconds,
        "stopped": result.stopped,
        "unknown": result.unknown,
        "hosts": {
            outcome.value: number for outcome, number in result_text.tally(result).items() if number
        },
        "exit_code": result.exit_code,
    }
    records = [
        {"record": "run", **_without_hosts(result), "hosts": hosts},
        *({"record": "host", **msgspec.to_builtins(host)} for host in result.hosts),
        {"record": "totals", **totals},
    ]
    return "".join(f"{encode(record)}\n" for record in records)


def _without_hosts(result: "Result") -> dict[str, object]:
    separate = ("hosts", "seconds", "stopped", "unknown")
    fields: dict[str, object] = msgspec.to_builtins(result)
    return {key: value for key, value in fields.items() if key not in separate}
