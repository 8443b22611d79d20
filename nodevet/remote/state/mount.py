"""What is mounted at a path, as /proc/1/mountinfo says it; nothing touches the mount itself."""

import re

from nodevet.remote.look import absent, absolute_path, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.mounts import (
    FIRST,
    OWN,
    MountTree,
    parse_mounts,
    read_machine_file,
    record_at,
    type_of,
)
from nodevet.remote.probe.files import quote, resolve
from nodevet.remote.probe.mount_files import LOCAL

FIELDS = ("type", "source", "root", "options")


def look(root: str, path: str) -> "dict[str, object]":
    """{type, source, root, options of the mount}; absent if nothing, or an automount, is there.
    Raises ValueError if mount(8) would follow a link and mount somewhere else."""
    text = read_machine_file(root, FIRST, OWN, True)
    tree = MountTree(parse_mounts(text))
    record = record_at(tree, absolute_path(path))
    if not record["mounted"]:
        is_local = type_of(tree.mount_at(path)) in LOCAL  # a server may not answer
        if is_local and resolve(root, path) != path:
            raise ValueError("a symbolic link leads to " + quote(resolve(root, path)))
        return absent()
    for field in FIELDS:
        if record[field] is None:
            raise ValueError("{}: {}".format(field, record["errors"][field]))
    return present({field: record[field] for field in FIELDS})


def patterns(root: str, name: str) -> "Patterns":
    """Patterns of commands that mount or unmount a file system."""
    return Patterns(r"\bu?mount\b[^;|&]*\s{}(?![\w./-])".format(re.escape(name)))
