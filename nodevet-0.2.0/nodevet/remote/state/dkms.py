"""A module of DKMS for one kernel, as `dkms status` would say it: /var/lib/dkms."""

import os
import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.dkms import TREE, build, is_added
from nodevet.remote.probe.files import names_or_empty, path_under

WORD = r"([A-Za-z0-9_+][A-Za-z0-9._+~-]{0,99})"
NAME = re.compile(r"{0}/{0}/{0}\Z".format(WORD))


def look(root: str, name: str) -> "dict[str, object]":
    """`added`, `built` or `installed`; absent if DKMS does not know the version."""
    match = NAME.match(name)
    if match is None:
        raise ValueError("not NAME/VERSION/KERNEL")
    module, version, kernel = match.groups()
    if not is_added(root, module, version):
        return absent()
    links = names_or_empty(root, TREE + "/" + module)
    builds = [row for row in (build(root, module, link) for link in links) if row]
    if any((row["kernel"], row["version"]) == (kernel, version) for row in builds):
        return present("installed")
    folder = "{}/{}/{}/{}".format(TREE, module, version, kernel)
    arches = names_or_empty(root, folder)
    is_built = any(os.path.isdir(path_under(root, folder + "/" + arch)) for arch in arches)
    return present("built" if is_built else "added")


def patterns(root: str, name: str) -> "Patterns":
    """Nothing else removes a build; DKMS's own hooks only add some."""
    return Patterns()
