# Copyright: nodevet contributors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Code that the modules share: run nodevet, and read the run that it prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SCHEMA = 3  # of the runs that nodevet prints
SEVERITIES = ("info", "warning", "critical")
NEVER = "never"
WORST_FIRST = ("failing", "unknown", "ok")
MOST_LINES = 10  # of the message

ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str"},
    "inventory": {"type": "list", "elements": "str"},
    "limit": {"type": "list", "elements": "str", "default": []},
    "baseline": {"type": "list", "elements": "str", "default": []},
    "fail_on": {"type": "str", "choices": [*SEVERITIES, NEVER], "default": "warning"},
    "store": {"type": "str"},
    "project": {"type": "path"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "executable": {"type": "path", "default": "nodevet"},
}


def run(module, command, options):
    """Run `nodevet COMMAND` and end the module with its result. `options`: the names of the options
    that only this command has."""
    words = command_line(module.params, command, options)
    beside = [str(Path(sys.executable).parent)]
    words[0] = module.get_bin_path(words[0], required=True, opt_dirs=beside)
    rc, out, err = module.run_command(words, environ_update={"NO_COLOR": "1"})
    try:
        document = json.loads(out)
        result = result_of(document, module.params["fail_on"], rc)
    except (ValueError, KeyError, TypeError) as error:
        if rc == 0:
            err = f"nodevet printed no run that this collection reads: {error}"
        module.fail_json(msg=err.strip() or f"nodevet ended with {rc}", exit_code=rc, cmd=words)
    result.update(exit_code=rc, cmd=words, changed=False)  # Ansible fails any task with an rc
    if rc and module.params["fail_on"] != NEVER:
        module.fail_json(msg=message(result, err), **result)
    facts = {key: result[key] for key in ("verdict", "failing", "run")}
    module.exit_json(msg=message(result, err), ansible_facts={"nodevet": facts}, **result)


def command_line(params, command, options):
    """The command line that a person would type."""
    words = [params["executable"], command, "--format", "json"]
    if params["fail_on"] != NEVER:
        words += ["--fail-on", params["fail_on"]]
    for name in ("inventory", "limit", "baseline"):
        for value in params[name] or ():
            words += [f"--{name}", value]
    for name in ("store", "project", *options):
        if params[name]:
            words += [f"--{name}", params[name]]
    return [*words, *params["arguments"], "--", *(params["hosts"] or ())]


def result_of(document, fail_on, rc):
    """The verdicts of a run and of each host. A run is ok only if nodevet exited with 0. Raises
    ValueError, KeyError or TypeError if the document is not a run."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"it has schema {document['schema']!r}, not {SCHEMA}")
    hosts = {report["host"]: host_result(report, fail_on) for report in document["hosts"]}
    verdicts = {host["verdict"] for host in hosts.values()}
    verdict = next((worst for worst in WORST_FIRST if worst in verdicts), "unknown")
    if verdict == "ok" and rc:
        verdict = "unknown"
    failing = sorted({check for host in hosts.values() for check in host["failing"]})
    return {"verdict": verdict, "failing": failing, "run": document["id"], "hosts": hosts}


def host_result(report, fail_on):
    """The result of one host: `failing` if a check at or above the severity fails; `unknown` if
    nodevet could not judge the host; else `ok`."""
    findings = report["findings"]
    least = 0 if fail_on == NEVER else SEVERITIES.index(fail_on)
    serious = {each["verdict"] for each in findings if SEVERITIES.index(each["severity"]) >= least}
    counted = [each for each in report.get("counted", ()) if each["severity"] != "shadow"]
    judged = {each["verdict"] for each in [*findings, *counted]}
    verdict = "ok"
    if report["status"] != "vetted" or judged <= {"unknown", "not_applicable"}:
        verdict = "unknown"
    if "unknown" in serious:
        verdict = "unknown"
    if "fail" in serious and report["status"] == "vetted":
        verdict = "failing"
    return {
        "verdict": verdict,
        "status": report["status"],
        "why": report["why"],
        "baseline": report["baseline"],
        "failing": sorted({each["check"] for each in findings if each["verdict"] == "fail"}),
        "findings": findings,
    }


def message(result, err):
    """A line for each host that is not ok; without such a host, the output of nodevet."""
    lines = [
        f"{name}: {', '.join(host['failing']) or host['why'] or host['verdict']}"
        for name, host in sorted(result["hosts"].items())
        if host["verdict"] != "ok"
    ]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"and {len(lines) - MOST_LINES} more"]
    if not lines and result["exit_code"]:
        return err.strip() or f"nodevet ended with {result['exit_code']}"
    return "\n".join(lines) or f"all ok: {len(result['hosts'])} hosts"
