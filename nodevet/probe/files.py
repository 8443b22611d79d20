"""Reading kernel files under a root, each value failing alone."""

import errno
import os

LIMIT = 1 << 20  # no kernel file that we read is larger; hostile ones are cut here


class Absent(Exception):
    """The node has no such thing at all; the message says what is missing."""


def path_under(root, path):
    """Where `path` (absolute) lies under `root`."""
    return path if root == "/" else os.path.join(root, path.lstrip("/"))


def read(root, path):
    """The text of one file, at most LIMIT bytes, undecodable bytes escaped. Raises OSError."""
    with open(path_under(root, path), "rb") as file:
        return file.read(LIMIT).decode("utf-8", "backslashreplace")


def names(root, path):
    """The names in a directory, sorted. Raises OSError."""
    return sorted(os.listdir(path_under(root, path)))


def reason(error):
    """Why a value could not be read, in one short word or sentence."""
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "{}: {}".format(type(error).__name__, error)[:200]


class Record(dict):
    """A JSON object in which a value that could not be read is null, and why.

    >>> record = Record()
    >>> record.take("governor", read, "/", "/no/such/file")
    >>> record
    {'errors': {'governor': 'ENOENT'}, 'governor': None}
    """

    def __init__(self, **known):
        super().__init__(errors={}, **known)

    def take(self, field, function, *arguments):
        """Set `field` to what the function returns, or to None and the reason."""
        try:
            self[field] = function(*arguments)
        except (OSError, ValueError, LookupError) as error:
            self.fail(field, reason(error))

    def fail(self, field, why):
        self[field] = None
        self["errors"][field] = why
