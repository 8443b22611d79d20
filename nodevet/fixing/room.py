"""Room on a node's disk for programs that write their files in place.

On a full disk such a program leaves half a file, and restoring the file needs room, too.
"""

import posixpath

from nodevet.resource import RunCommand

KIB = 256
_TAKE = (
    'd=$1; until [ -d "$d" ]; do d=$(dirname -- "$d"); done; '
    't=$(mktemp -- "$d/.nodevet.XXXXXX") || exit 1; trap \'rm -f -- "$t"\' EXIT; '
    f'LC_ALL=C dd if=/dev/zero of="$t" bs=1024 count={KIB} conv=fsync status=none'
)


def require_room(path: str) -> RunCommand:
    """A command that fails unless the file system of `path` has 256 KiB free."""
    return RunCommand(words=("sh", "-c", _TAKE, "sh", posixpath.dirname(path)))
