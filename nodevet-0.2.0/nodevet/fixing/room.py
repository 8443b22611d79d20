"""Room on a node's disk for programs that write their files in place.

On a full disk such a program leaves half a file, and restoring the file needs room, too.
"""

import posixpath

from nodevet.resource import RunCommand

KIB = 256
_TAKE = (
    'd=$1; until [ -d "$d" ]; do d=$(dirname -- "$d"); done; rm -f -- "$d"/.nodevet-room.??????; '
    't=$(mktemp -- "$d/.nodevet-room.XXXXXX") && exec 3>"$t" && rm -f -- "$t" || exit 1; '
    f"LC_ALL=C dd if=/dev/zero bs=1024 count={KIB} conv=fsync status=none >&3"
)
"""The file has no name while it takes room, so nothing is left if the program is killed."""


def require_room(path: str) -> RunCommand:
    """A command that fails unless the file system of `path` has 256 KiB free."""
    return RunCommand(words=("sh", "-c", _TAKE, "sh", posixpath.dirname(path)))
