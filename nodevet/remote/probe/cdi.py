"""Specifications of the Container Device Interface, in YAML or JSON.

See cncf-tags/container-device-interface, SPEC.md. Of YAML this reads what programs write: mappings
and lists in block style, plain and quoted scalars.
"""

import os

from nodevet.remote.probe.files import (
    Reading,
    attempt,
    names_or_empty,
    path_under,
    quote,
    read,
    text_lines,
)
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FOLDERS = ("/etc/cdi", "/var/run/cdi")
FIELDS = ("kind", "devices", "missing", "examples", "paths", "driver_version")
MOST = 64  # specifications
PATHS = 4096  # of one specification
DEVICES = 1024
MOST_EXAMPLES = 256  # missing paths
VERSIONS = 16  # of the driver's libraries in one
ROW = Pattern(r"( *)((?:- +)*)(?:\"?([A-Za-z][A-Za-z0-9_.-]*)\"?:(?: +(.*))?|(.*))\Z")
QUOTED = Pattern(r"(?:\"([^\"]*)\"|'((?:[^']|'')*)')\s*(?:#.*)?\Z")
LIBRARY = Pattern(r"/libcuda\.so\.([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\Z")
HOST_PATHS = (("mounts", "hostPath"), ("hooks", "path"))


def scalar(text: str) -> str:
    """
    >>> scalar('"0"'), scalar("a # b"), scalar("'it''s'")
    ('0', 'a', "it's")
    """
    text = text.strip()
    match = QUOTED.match(text)
    if match is None:
        return text.split(" #", 1)[0].strip()
    return match.group(1) if match.group(2) is None else match.group(2).replace("''", "'")


def from_yaml(text: str) -> "Iterator[tuple[tuple[str, ...], int, str]]":
    """(keys, number of the list item, value) of each scalar. Raises ValueError.

    >>> list(from_yaml("kind: a\\ndevices:\\n- name: b\\n"))
    [(('kind',), 0, 'a'), (('devices', 'name'), 1, 'b')]
    """
    parents: "list[tuple[int, str]]" = []  # (indent, key)
    item = 0
    for row in text_lines(text):
        if not row.strip() or row.lstrip().startswith("#") or row.startswith("---"):
            continue
        if "\t" in row[: len(row) - len(row.lstrip())]:
            raise ValueError("a tab in the indent")
        match = ROW.match(row)
        if match is None:
            raise ValueError("not a row of YAML: {}".format(quote(row)))
        spaces, dashes, key, value, item_text = match.groups()
        item += dashes.count("-")
        indent = len(spaces) + len(dashes)
        # a list may have the indent of its key
        limit = len(spaces) if dashes else indent
        while parents and (parents[-1][0] > limit or (parents[-1][0] == limit and not dashes)):
            parents.pop()
        keys = tuple(parent_key for _, parent_key in parents)
        if key is None:
            if item_text and not item_text.startswith("- "):
                yield keys, item, scalar(item_text)
            continue
        if value is None or not value.strip():
            parents.append((indent, key))
            if len(parents) > 32:
                raise ValueError("nested too deeply")
        else:
            yield keys + (key,), item, scalar(value)


def from_json(text: str) -> "list[tuple[tuple[str, ...], int, str]]":
    """Like `from_yaml`, for JSON. Raises ValueError."""
    import json

    scalars, counter = [], [0]

    def walk(value: object, keys: "tuple[str, ...]") -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                walk(below, keys + (key,))
        elif isinstance(value, list):
            for below in value:
                counter[0] += 1
                walk(below, keys)
        elif value is not None:
            scalars.append((keys, counter[0], str(value)))

    try:
        walk(json.loads(text), ())
    except RecursionError:
        raise ValueError("nested too deeply")
    return scalars


def parse(text: str) -> "tuple[str, list[str], list[str]]":
    """(kind, devices, host paths) of a specification. Raises ValueError."""
    kind, devices, files, nodes = None, [], [], {}
    for keys, item, value in from_json(text) if text.lstrip()[:1] == "{" else from_yaml(text):
        if keys == ("kind",):
            kind = value
        elif keys == ("devices", "name"):
            devices.append(value)
        elif keys[-2:] == ("deviceNodes", "hostPath"):
            nodes[item] = value
        elif keys[-2:] == ("deviceNodes", "path"):
            nodes.setdefault(item, value)
        elif keys[-2:] in HOST_PATHS:
            files.append(value)
    paths = sorted({path for path in files + list(nodes.values()) if path.startswith("/")})
    if kind is None:
        raise ValueError("it has no kind")
    if len(paths) > PATHS or len(devices) > DEVICES:
        raise ValueError("more than {} paths or {} devices".format(PATHS, DEVICES))
    return kind, devices, paths


def is_missing(root: str, path: str) -> bool:
    """Whether a path does not exist. Raises OSError if this user may not look."""
    try:
        os.stat(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def specification(root: str, path: str) -> "Reading | None":
    """The record of one file; None if it is not NVIDIA's."""
    record = Reading(path=path)
    parsed, why = attempt(lambda: parse(read(root, path)))
    if parsed is None:
        record.fail_all(FIELDS, why)
        return record
    kind, devices, paths = parsed
    if "nvidia" not in kind:
        return None
    record.update(kind=kind[:200], devices=[name[:200] for name in devices], paths=len(paths))
    missing, why = attempt(
        lambda: [path_to_check for path_to_check in paths if is_missing(root, path_to_check)]
    )
    if missing is not None:
        record.update(
            missing=len(missing),
            examples=[path_to_check[:1000] for path_to_check in missing[:MOST_EXAMPLES]],
        )
    else:
        record.fail_all(("missing", "examples"), why)
    versions = {match.group(1) for match in map(LIBRARY.search, paths) if match}
    if len(versions) > VERSIONS:
        record.fail("driver_version", "more than {} versions".format(VERSIONS))
    else:
        record["driver_version"] = " and ".join(sorted(versions))
    return record


def specifications(root: str) -> "list[Reading]":
    """All specifications of NVIDIA. Raises OSError, ValueError."""
    records, visited = [], set()
    for folder in FOLDERS:
        real_folder = os.path.realpath(path_under(root, folder))
        if real_folder in visited:
            continue
        visited.add(real_folder)
        entries = names_or_empty(root, folder)
        files = [name for name in entries if name.endswith((".yaml", ".yml", ".json"))]
        if len(files) > MOST:
            raise ValueError("more than {} specifications in {}".format(MOST, folder))
        specs = (specification(root, folder + "/" + name) for name in files)
        records += [spec for spec in specs if spec is not None]
    return records
