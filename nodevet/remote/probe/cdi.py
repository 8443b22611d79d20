"""Specifications of the Container Device Interface: what of the node they bring into a container.

They are YAML or JSON (cncf-tags/container-device-interface, SPEC.md). YAML is read as far as
programs write it: mappings and lists in block style, plain and quoted scalars.
"""

import os

from nodevet.remote.probe.files import Reading, attempt, names, path_under, quote, read
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FOLDERS = ("/etc/cdi", "/var/run/cdi")
FIELDS = ("kind", "devices", "missing", "examples", "paths", "driver_version")
MOST = 64  # specifications
PATHS = 4096  # that one names
DEVICES = 1024
TOLD = 256  # paths that are missing
VERSIONS = 16  # of the driver's libraries that one names
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
    """(keys, number of the list item, value) of every scalar. Raises ValueError.

    >>> list(from_yaml("kind: a\\ndevices:\\n- name: b\\n"))
    [(('kind',), 0, 'a'), (('devices', 'name'), 1, 'b')]
    """
    above: "list[tuple[int, str]]" = []  # (indent, key)
    item = 0
    for row in text.splitlines():
        if not row.strip() or row.lstrip().startswith("#") or row.startswith("---"):
            continue
        if "\t" in row[: len(row) - len(row.lstrip())]:
            raise ValueError("a tab in the indent")
        match = ROW.match(row)
        if match is None:
            raise ValueError("not a row of YAML: {}".format(quote(row)))
        spaces, dashes, key, value, alone = match.groups()
        item += dashes.count("-")
        indent = len(spaces) + len(dashes)
        # a list may stand at the indent of its key
        limit = len(spaces) if dashes else indent
        while above and (above[-1][0] > limit or (above[-1][0] == limit and not dashes)):
            above.pop()
        keys = tuple(each for _, each in above)
        if key is None:
            if alone and not alone.startswith("- "):
                yield keys, item, scalar(alone)
            continue
        if value is None or not value.strip():
            above.append((indent, key))
            if len(above) > 32:
                raise ValueError("nested too deeply")
        else:
            yield keys + (key,), item, scalar(value)


def from_json(text: str) -> "list[tuple[tuple[str, ...], int, str]]":
    """The same of JSON. Raises ValueError."""
    import json

    found, counter = [], [0]

    def walk(value: object, keys: "tuple[str, ...]") -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                walk(below, keys + (key,))
        elif isinstance(value, list):
            for below in value:
                counter[0] += 1
                walk(below, keys)
        elif value is not None:
            found.append((keys, counter[0], str(value)))

    try:
        walk(json.loads(text), ())
    except RecursionError:
        raise ValueError("nested too deeply")
    return found


def parse(text: str) -> "tuple[str, list[str], list[str]]":
    """(kind, devices, paths of the node) of a specification. Raises ValueError."""
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
    """Whether it is not there; one that may not be looked at is not missing. Raises OSError."""
    try:
        os.stat(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def specification(root: str, path: str) -> "Reading | None":
    """One file as a record; None if it is not NVIDIA's."""
    record = Reading(path=path)
    found, why = attempt(lambda: parse(read(root, path)))
    if found is None:
        record.fail_all(FIELDS, why)
        return record
    kind, devices, paths = found
    if "nvidia" not in kind:
        return None
    record.update(kind=kind[:200], devices=[name[:200] for name in devices], paths=len(paths))
    missing, why = attempt(lambda: [each for each in paths if is_missing(root, each)])
    if missing is not None:
        record.update(missing=len(missing), examples=[each[:1000] for each in missing[:TOLD]])
    else:
        record.fail_all(("missing", "examples"), why)
    versions = {match.group(1) for match in map(LIBRARY.search, paths) if match}
    if len(versions) > VERSIONS:
        record.fail("driver_version", "more than {} versions".format(VERSIONS))
    else:
        record["driver_version"] = " and ".join(sorted(versions))
    return record


def specifications(root: str) -> "list[Reading]":
    """All of NVIDIA's. Raises OSError, ValueError."""
    found, seen = [], set()
    for folder in FOLDERS:
        try:
            listed = names(root, folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        place = os.path.realpath(path_under(root, folder))
        if place in seen:
            continue
        seen.add(place)
        files = [name for name in listed if name.endswith((".yaml", ".yml", ".json"))]
        if len(files) > MOST:
            raise ValueError("more than {} specifications in {}".format(MOST, folder))
        specs = (specification(root, folder + "/" + name) for name in files)
        found += [each for each in specs if each is not None]
    return found
