"""dcgmi's JSON: its health report, and the results of a diagnostic.

Both differ between versions of DCGM. This module reads what all versions have in common; anything
else is an error, never a pass.
"""

import json

from nodevet.remote.probe.files import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

DIAGNOSTICS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
PASSED = "pass"
NOT_RUN = ("skip", "skipped", "not run", "notrun", "none")
INCIDENTS = 1000
TESTS = 20000
TEXT = 500  # characters of a message


def parse_json(text: str) -> "dict[str, Any]":
    """The JSON object in a text, after any rows before it. Raises ValueError."""
    start = 0 if text.startswith("{") else text.find("\n{") + 1 or text.find("{")
    if start < 0:
        raise ValueError(quote(" ".join(text.split())) if text.strip() else "it is empty")
    try:
        document = json.loads(text[start:])
    except RecursionError:
        raise ValueError("nested too deeply")
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def one_line(value: object) -> str:
    """A value as one line of at most TEXT characters."""
    if isinstance(value, (list, tuple)):
        value = "; ".join(one_line(item) for item in value[:8])
    elif isinstance(value, dict):
        value = value.get("warning") or value.get("value") or json.dumps(value)
    return " ".join(str(value).split())[:TEXT]


def parse_health(text: str) -> "tuple[str, list[tuple[str, str, str, str]]]":
    """(overall, incidents) of `dcgmi health -c -j`. Raises ValueError.

    An incident: (part, watch, status, text), as (GPU 0, PCIe system, Warning, why).
    """
    body = parse_json(text).get("body")
    if not isinstance(body, dict):
        raise ValueError("it has no body")
    overall, incidents = None, []
    for path, value, message in values_below(body, ()):
        if path == ("Overall Health",):
            overall = value
        elif len(path) >= 3 and path[2] == "Errors":
            incidents.append((" ".join(path[:2]), " ".join(path[3:]), value, message))
        elif len(path) == 2 and value != "Healthy":
            incidents.append((" ".join(path), "", value, message))
    if overall is None:
        raise ValueError("it does not say the overall health")
    explained = {part for part, watch, _, _ in incidents if watch}
    incidents = [incident for incident in incidents if incident[1] or incident[0] not in explained]
    if len(incidents) > INCIDENTS:
        raise ValueError("more than {} incidents".format(INCIDENTS))
    return overall, incidents


def values_below(
    node: "dict[str, Any]", path: "tuple[str, ...]"
) -> "list[tuple[tuple[str, ...], str, str]]":
    """(path, value, overflow text) of each part with a value."""
    rows = []
    if path and "value" in node:
        rows.append((path, one_line(node["value"]), one_line(node.get("overflow", ""))))
    for key, below in node.items():
        if isinstance(below, dict):
            child_path = path if key == "children" else path + (str(key)[:100],)
            if len(child_path) < 8:
                rows += values_below(below, child_path)
    return rows


def parse_diag(text: str) -> "dict[str, Any]":
    """{field of nodevet.evidence.dcgm.Diagnostic: value} of a diagnostic. Raises ValueError."""
    document = parse_json(text)
    diag = next((document[key] for key in DIAGNOSTICS if isinstance(document.get(key), dict)), None)
    if diag is None:
        raise ValueError("not the output of dcgmi diag -j")
    if diag.get("runtime_error"):
        raise ValueError("the diagnostic did not run: " + quote(one_line(diag["runtime_error"])))
    results = [
        (str(test.get("name", ""))[:100], result)
        for category in items(diag, "test_categories")
        for test in items(category, "tests")
        for result in results_of(test)
    ]
    if not results:
        raise ValueError("it has no results")
    if len(results) > TESTS:
        raise ValueError("more than {} results".format(TESTS))
    passed, not_passed = 0, []
    for name, result in results:
        status = status_of(result)
        if status.lower() == PASSED:
            passed += 1
        else:
            not_passed.append(
                {
                    "test": name,
                    "part": part_of(result),
                    "status": status or "no status",
                    "ran": status.lower().replace("_", " ") not in NOT_RUN,
                    "text": one_line(result.get("warnings") or result.get("info") or ""),
                }
            )
    if len(not_passed) > INCIDENTS:
        raise ValueError("more than {} results that did not pass".format(INCIDENTS))
    headers = [
        part for part in (document, diag, document.get("metadata")) if isinstance(part, dict)
    ]
    return {
        "results": len(results),
        "passed": passed,
        "not_passed": not_passed,
        "driver_version": first_of(headers, ("Driver Version Detected",)),
        "dcgm_version": first_of(headers, ("version", "DCGM Version")),
        "serials": serials_of(document, headers),
    }


def status_of(result: "dict[str, Any]") -> str:
    return one_line(result.get("status", ""))[:40]


def results_of(test: "dict[str, Any]") -> "list[dict[str, Any]]":
    """The results of a test, with its summary if only that says that it did not pass, or if there
    are no results. A test without either was not run."""
    results = items(test, "results")
    summary = test.get("test_summary")
    if not results:
        return [summary if isinstance(summary, dict) else {"status": "Not Run"}]
    if not isinstance(summary, dict) or status_of(summary).lower() in ("", PASSED):
        return results
    has_failure = any(status_of(result).lower() != PASSED for result in results)
    return results if has_failure else results + [summary]


def items(node: "dict[str, Any]", key: str) -> "list[dict[str, Any]]":
    """The objects in a list at `key`, or the single object there."""
    value = node.get(key)
    if isinstance(value, dict):
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part_of(result: "dict[str, Any]") -> str:
    """
    >>> part_of({"gpu_id": "3"}), part_of({"entity_group": "GPU", "entity_id": 0}), part_of({})
    ('GPU 3', 'GPU 0', '')
    """
    if "gpu_id" in result or "gpu_ids" in result:
        return "GPU " + one_line(result.get("gpu_id", result.get("gpu_ids")))[:60]
    if "entity_group" in result:
        return "{} {}".format(
            one_line(result["entity_group"])[:40], one_line(result.get("entity_id", ""))
        )
    return ""


def first_of(objects: "Sequence[dict[str, Any]]", keys: "Sequence[str]") -> str:
    """The first text under one of these keys; "" if there is none."""
    texts = [
        mapping[key] for mapping in objects for key in keys if isinstance(mapping.get(key), str)
    ]
    return one_line(texts[0])[:100] if texts else ""


def serials_of(document: "dict[str, Any]", objects: "Sequence[dict[str, Any]]") -> "list[str]":
    """The sorted serial numbers of the tested GPUs."""
    serials = []
    for group in items(document, "entity_groups"):
        if group.get("entity_group") == "GPU":
            serials += [serial.get("serial_num") for serial in items(group, "entities")]
    for mapping in objects:
        table = mapping.get("GPU Device Serials")
        serials += list(table.values()) if isinstance(table, dict) else []
    return sorted(
        {one_line(serial)[:60] for serial in serials if isinstance(serial, str) and serial}
    )[:1024]
