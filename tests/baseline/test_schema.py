"""The JSON Schema for editors, judged with a small reading of JSON Schema itself."""

import re
from functools import partial

import pytest

from nodevet.baseline.files import open_file
from nodevet.baseline.library import shipped_folder
from nodevet.baseline.schema import schema
from nodevet.checking.catalog import Catalog
from nodevet.document.tree import plain

KEYWORDS = {
    "$schema", "$defs", "$ref", "title", "description", "default", "format", "type", "enum",
    "const", "anyOf", "oneOf", "properties", "patternProperties", "required",
    "additionalProperties", "propertyNames", "minProperties", "items", "minItems", "pattern",
    "minLength", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip


def has_type(value, name):
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, TYPES[name])


def valid(rule, value, root):
    """Whether a value keeps a rule. Raises for a keyword that this reading does not know."""
    if isinstance(rule, bool):
        return rule
    assert set(rule) <= KEYWORDS, set(rule) - KEYWORDS
    inner = partial(valid, root=root)
    if "$ref" in rule and not inner(root["$defs"][rule["$ref"].removeprefix("#/$defs/")], value):
        return False
    names = rule.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(has_type(value, name) for name in names):
        return False
    if "anyOf" in rule and not any(inner(choice, value) for choice in rule["anyOf"]):
        return False
    if "oneOf" in rule and sum(inner(choice, value) for choice in rule["oneOf"]) != 1:
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "const" in rule and value != rule["const"]:
        return False
    if isinstance(value, str):
        size = rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", len(value))
        return size and ("pattern" not in rule or re.search(rule["pattern"], value) is not None)
    if isinstance(value, list):
        return rule.get("minItems", 0) <= len(value) and all(
            inner(rule.get("items", True), item) for item in value
        )
    if isinstance(value, dict):
        known = rule.get("properties", {})
        other = rule.get("additionalProperties", True)
        return (
            set(rule.get("required", ())) <= set(value)
            and all(inner(known.get(key, other), item) for key, item in value.items())
            and all(inner(rule.get("propertyNames", True), key) for key in value)
            and all(
                inner(part, item)
                for pattern, part in rule.get("patternProperties", {}).items()
                for key, item in value.items()
                if re.search(pattern, key)
            )
            and len(value) >= rule.get("minProperties", 0)
        )
    if has_type(value, "number"):
        return rule.get("minimum", value) <= value <= rule.get("maximum", value)
    return True


@pytest.fixture(scope="module")
def shipped_schema():
    return schema(Catalog())


@pytest.mark.parametrize(
    "path", sorted(shipped_folder().glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_baselines_match_the_schema(path, shipped_schema):
    file, problems = open_file(path, Catalog())
    assert problems == ()
    assert valid(shipped_schema, plain(file.root), shipped_schema)


@pytest.fixture(scope="module")
def rule(catalog):
    return schema(catalog)


WAIVER = {"check": "link", "owner": "a", "reason": "b", "until": "2026-12-31"}


def document(**keys):
    return {"nodevet": 1, **keys}


@pytest.mark.parametrize(
    "good",
    [
        document(),
        document(extends="a", title="x", applies=None, expect=None),
        document(extends=["a", "b"], fix=["number"]),
        document(fix={"number": False}, severity={"number": "info"}),
        document(applies={"hosts": "a[1-2]", "groups": ["x"], "gpu": {"device": "10de:2330"}}),
        document(expect={"number": 8, "switch": None, "version": "1"}),
        document(expect={"number": {"count": None, "minimum": 3}}),
        document(expect={"link": {"width": 8}}),  # the generation may be inherited
        document(expect={"zones": {"zones": {"0": {"cpus": "0-3"}}}}),
        document(waivers=[WAIVER | {"accepts": "x8"}, WAIVER | {"any": True}]),
    ],
)
def test_the_schema_accepts_valid_baselines(rule, good):
    assert valid(rule, good, rule)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"nodevet": 2},
        document(extend="a"),
        document(expect={"nubmer": 8}),
        document(expect={"number": "8"}),
        document(expect={"number": {"cuont": 8}}),
        document(expect={"link": 5}),
        document(expect={"link": {"width": 3}}),
        document(expect={"zones": {"0": {"cpus": "0-3"}}}),  # a mapping always names fields
        document(severity={"number": "high"}),
        document(severity={"nubmer": "info"}),
        document(fix=["nubmer"]),
        document(applies={"gpu": {"device": "2330"}}),
        document(waivers=[WAIVER]),
        document(waivers=[WAIVER | {"accepts": "x8", "any": True}]),
        document(waivers=[WAIVER | {"any": False}]),
        document(waivers=[WAIVER | {"accepts": None}]),
        document(waivers=[{"check": "link", "any": True, "owner": "a", "until": "2026-12-31"}]),
        document(waivers=[WAIVER | {"accepts": 7, "check": "x"}]),
    ],
)
def test_the_schema_rejects_invalid_baselines(rule, bad):
    assert not valid(rule, bad, rule)


def test_the_schema_describes_each_key_and_check(rule):
    assert rule["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert rule["properties"]["expect"]["properties"]["switch"]["description"] == "It is on or off."
    assert all("description" in part for part in rule["properties"].values())
    for part in rule["properties"].values():
        assert "title" not in part
