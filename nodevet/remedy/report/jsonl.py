"""The result as JSON lines: the run with the names of all its nodes, the nodes, the totals.

Every line says what it is in `record`: `run`, `host` or `totals`.
"""

import msgspec

from nodevet.remedy.report.words import tally
from nodevet.remedy.result import Result
from nodevet.report.json import encode


def render(result: Result) -> str:
    hosts = [host.host for host in result.hosts]
    totals = {
        "seconds": result.seconds,
        "stopped": result.stopped,
        "unknown": result.unknown,
        "hosts": {outcome.value: number for outcome, number in tally(result).items() if number},
        "exit_code": result.exit_code,
    }
    records = [
        {"record": "run", **_without_hosts(result), "hosts": hosts},
        *({"record": "host", **msgspec.to_builtins(host)} for host in result.hosts),
        {"record": "totals", **totals},
    ]
    return "".join(f"{encode(record)}\n" for record in records)


def _without_hosts(result: Result) -> dict[str, object]:
    ended = ("hosts", "seconds", "stopped", "unknown")
    fields: dict[str, object] = msgspec.to_builtins(result)
    return {key: value for key, value in fields.items() if key not in ended}
