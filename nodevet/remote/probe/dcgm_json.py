"""What dcgmi prints as JSON: its health report, and the results of a diagnostic.

Both have changed with DCGM's versions; what all of them have in common is read, and what is not
among it is an error, never a pass.
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


def loaded(text: str) -> "dict[str, Any]":
    """The JSON object in a text that may say something in rows before it. Raises ValueError."""
    start = 0 if text.startswith("{") else text.find("\n{") + 1 or text.find("{")
    if start < 0:
        raise ValueError(quote(" ".join(text.split())) if text.strip() else "it is empty")
    try:
        found = json.loads(text[start:])
    except RecursionError:
        raise ValueError("nested too deeply")
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def line(value: object) -> str:
    """A value as one line of bounded length."""
    if isinstance(value, (list, tuple)):
        value = "; ".join(line(each) for each in value[:8])
    elif isinstance(value, dict):
        value = value.get("warning") or value.get("value") or json.dumps(value)
    return " ".join(str(value).split())[:TEXT]


def parse_health(text: str) -> "tuple[str, list[tuple[str, str, str, str]]]":
    """(overall, incidents) of `dcgmi health -c -j`. Raises ValueError.

    An incident is a part of which a watch says something: (GPU 0, PCIe system, Warning, why).
    """
    body = loaded(text).get("body")
    if not isinstance(body, dict):
        raise ValueError("it has no body")
    overall, incidents = None, []
    for path, value, message in values(body, ()):
        if path == ("Overall Health",):
            overall = value
        elif len(path) >= 3 and path[2] == "Errors":
            incidents.append((" ".join(path[:2]), " ".join(path[3:]), value, message))
        elif len(path) == 2 and value != "Healthy":
            incidents.append((" ".join(path), "", value, message))
    if overall is None:
        raise ValueError("it does not say the overall health")
    told = {part for part, watch, _, _ in incidents if watch}
    incidents = [each for each in incidents if each[1] or each[0] not in told]
    if len(incidents) > INCIDENTS:
        raise ValueError("more than {} incidents".format(INCIDENTS))
    return overall, incidents


def values(
    node: "dict[str, Any]", path: "tuple[str, ...]"
) -> "list[tuple[tuple[str, ...], str, str]]":
    """(path, value, what is told besides) of every part that has a value."""
    found = []
    if path and "value" in node:
        found.append((path, line(node["value"]), line(node.get("overflow", ""))))
    for key, below in node.items():
        if isinstance(below, dict):
            deeper = path if key == "children" else path + (str(key)[:100],)
            if len(deeper) < 8:
                found += values(below, deeper)
    return found


def parse_diag(text: str) -> "dict[str, Any]":
    """What a diagnostic says, as a dict: the fields of nodevet.evidence.dcgm.Diagnostic that the
    file has. Raises ValueError."""
    whole = loaded(text)
    diag = next((whole[key] for key in DIAGNOSTICS if isinstance(whole.get(key), dict)), None)
    if diag is None:
        raise ValueError("it is not what dcgmi diag -j prints")
    if diag.get("runtime_error"):
        raise ValueError("the diagnostic did not run: " + quote(line(diag["runtime_error"])))
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
    passed, others = 0, []
    for name, result in results:
        status = status_of(result)
        if status.lower() == PASSED:
            passed += 1
        else:
            others.append(
                {
                    "test": name,
                    "part": part_of(result),
                    "status": status or "no status",
                    "ran": status.lower().replace("_", " ") not in NOT_RUN,
                    "text": line(result.get("warnings") or result.get("info") or ""),
                }
            )
    if len(others) > INCIDENTS:
        raise ValueError("more than {} results that did not pass".format(INCIDENTS))
    told = [place for place in (whole, diag, whole.get("metadata")) if isinstance(place, dict)]
    return {
        "results": len(results),
        "passed": passed,
        "not_passed": others,
        "driver_version": first_of(told, ("Driver Version Detected",)),
        "dcgm_version": first_of(told, ("version", "DCGM Version")),
        "serials": serials_of(whole, told),
    }


def status_of(result: "dict[str, Any]") -> str:
    return line(result.get("status", ""))[:40]


def results_of(test: "dict[str, Any]") -> "list[dict[str, Any]]":
    """The results of a test; its summary, too, if that alone says that it did not pass, and in
    their place if there are none. One without either was not run."""
    found = items(test, "results")
    summary = test.get("test_summary")
    if not found:
        return [summary if isinstance(summary, dict) else {"status": "Not Run"}]
    if not isinstance(summary, dict) or status_of(summary).lower() in ("", PASSED):
        return found
    told = any(status_of(each).lower() != PASSED for each in found)
    return found if told else found + [summary]


def items(node: "dict[str, Any]", key: str) -> "list[dict[str, Any]]":
    """The objects in a list of an object, or the one in its place."""
    listed = node.get(key)
    if isinstance(listed, dict):
        return [listed]
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def part_of(result: "dict[str, Any]") -> str:
    """
    >>> part_of({"gpu_id": "3"}), part_of({"entity_group": "GPU", "entity_id": 0}), part_of({})
    ('GPU 3', 'GPU 0', '')
    """
    if "gpu_id" in result or "gpu_ids" in result:
        return "GPU " + line(result.get("gpu_id", result.get("gpu_ids")))[:60]
    if "entity_group" in result:
        return "{} {}".format(line(result["entity_group"])[:40], line(result.get("entity_id", "")))
    return ""


def first_of(places: "Sequence[dict[str, Any]]", keys: "Sequence[str]") -> str:
    """The first value that a place has under one of these keys; "" if there is none."""
    found = [place[key] for place in places for key in keys if isinstance(place.get(key), str)]
    return line(found[0])[:100] if found else ""


def serials_of(whole: "dict[str, Any]", places: "Sequence[dict[str, Any]]") -> "list[str]":
    """The serial numbers of the GPUs that were tested, sorted; none if the file has none."""
    found = []
    for group in items(whole, "entity_groups"):
        if group.get("entity_group") == "GPU":
            found += [each.get("serial_num") for each in items(group, "entities")]
    for place in places:
        listed = place.get("GPU Device Serials")
        found += list(listed.values()) if isinstance(listed, dict) else []
    return sorted({line(each)[:60] for each in found if isinstance(each, str) and each})[:1024]
