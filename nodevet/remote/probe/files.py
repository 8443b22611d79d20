"""Reading kernel files under a root, each value failing alone.

Under a root other than / a symbolic link is followed as a process would see it
whose / is that root, so a captured tree never leads to the machine it lies on.
"""

import errno
import os
import re
import stat
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, TypeVar

    T = TypeVar("T")

LIMIT = 1 << 20  # bytes; no kernel file that is read whole is larger
CHUNK = 1 << 16  # bytes in one read(2)
HEAD = 1 << 16  # bytes of a file of which only the beginning matters
LINE = 4096  # characters; the longest kernel command line
ENTRIES = 1 << 16  # names in a directory
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel
SYSFS = ("/sys/devices/", "/sys/bus/", "/sys/class/")
ATTRIBUTE = 4096  # bytes; less than that of an attribute in sysfs is all of it: it has one page
LINKS = 40  # symbolic links in one path, as the kernel counts them


class Absent(Exception):  # noqa: N818
    """The node has no such thing at all; the message says what is missing."""


class SectionError(Exception):
    """A section as a whole cannot be read; the message is its reason."""


class TransientError(SectionError):
    """It cannot be read while the node is in a state that passes by itself."""


class Denied(SectionError):  # noqa: N818
    """A section that this user may not read; the message says who may."""


class NotHeld(SectionError, ValueError):  # noqa: N818
    """A tree that may hold a part of a machine only says nothing of a file that is not in it."""

    def __init__(self, path: str) -> None:
        super().__init__("{} is not in this tree, which may be a part of the machine".format(path))


class PartialRoot(str):
    """The root of a tree that may hold a part of a machine only, as a support bundle does."""


def tell_missing(root: str, path: str) -> None:
    """Raise NotHeld if a file that is missing below `root` may be on the machine all the same.

    Of /sys and /proc a tree is taken to hold whole folders, but neither all that lie side by side
    at the top nor all below /sys/devices/system.
    """
    if not isinstance(root, PartialRoot):
        return
    folder = os.path.dirname(path.rstrip("/"))
    kernel = path.startswith(("/sys/", "/proc/")) and folder != "/sys/devices/system"
    if not (kernel and folder.count("/") > 2 and os.path.isdir(path_under(root, folder))):
        raise NotHeld(path)


def resolve(root: str, path: str) -> str:
    """The absolute `path` with every symbolic link followed inside `root`. Raises OSError."""
    if root == "/":
        return os.path.realpath(path)
    directory, name = os.path.split(path.rstrip("/"))
    return _follow(root, _directory(root, directory), name)


@lru_cache(maxsize=4096)
def _directory(root: str, path: str) -> str:
    """`resolve`, remembered: a captured tree does not change while it is read."""
    return _follow(root, "", path)


def _follow(root: str, done: str, path: str) -> str:
    """Go on from the resolved directory `done` along `path`."""
    ahead, links = path.split("/"), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        try:
            target = os.readlink(root + done + "/" + part)
        except OSError:  # not a link, or not there: whoever opens it will be told
            done += "/" + part
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done = ""
        ahead = target.split("/") + ahead
    return done


def path_under(root: str, path: str) -> str:
    """Where the absolute `path` lies on this machine, links followed inside `root`."""
    return path if root == "/" else root + resolve(root, path)


def status_of(root: str, path: str) -> "os.stat_result":
    """os.stat of a path, links followed inside `root`. Raises OSError, NotHeld."""
    try:
        return os.stat(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        tell_missing(root, path)
        raise


def exists(root: str, path: str) -> bool:
    """Whether there is such a file or folder. Raises NotHeld."""
    if os.path.exists(path_under(root, path)):
        return True
    tell_missing(root, path)
    return False


def read_bytes(
    root: str, path: str, limit: int, look: "Callable[[int], object] | None" = None
) -> bytes:
    """At most `limit` bytes from the start of a regular file. Raises OSError, ValueError, and what
    `look` raises, which gets the open file's descriptor before anything is read."""
    try:
        # without O_NONBLOCK a FIFO in a captured tree would block for ever
        file = os.open(path_under(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        tell_missing(root, path)
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("not a regular file")
        if look:
            look(file)
        data = b""
        last = ATTRIBUTE if path.startswith(SYSFS) else 1  # a read of fewer bytes is the last one
        while len(data) < limit:
            chunk = os.read(file, min(limit - len(data), CHUNK))
            data += chunk
            if len(chunk) < last:
                break
        return data
    finally:
        os.close(file)


def read(root: str, path: str, look: "Callable[[int], object] | None" = None) -> str:
    """The text of one file, undecodable bytes escaped. Raises as `read_bytes` does."""
    data = read_bytes(root, path, LIMIT + 1, look)
    if len(data) > LIMIT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data.decode("utf-8", "backslashreplace")


def head(root: str, path: str) -> str:
    """The beginning of a file that may be long (/proc/cpuinfo). Raises OSError, ValueError."""
    return read_bytes(root, path, HEAD).decode("utf-8", "backslashreplace")


def bare(text: str) -> str:
    """A file's text without white space around it, and without the NUL that some end with.

    >>> bare(" 0-1\\n\\0")
    '0-1'
    """
    return text.strip().rstrip("\0").strip()


def line(root: str, path: str) -> str:
    """The text of a file of one line, stripped. Raises OSError, ValueError."""
    text = bare(read(root, path))
    if not text:
        raise ValueError("the file is empty")
    if len(text) > LINE:
        raise ValueError("longer than {} characters".format(LINE))
    return text


def is_this_machine(root: str, whole_machine: bool = False) -> bool:
    """Whether the tree under `root` is of the running kernel, as NVML and the clock are: `/`
    itself, the same machine mounted elsewhere (a container's /host), or what the request says
    is a whole machine."""
    if root == "/" or whole_machine:
        return True
    try:
        return read(root, BOOT_ID) == read("/", BOOT_ID)
    except (OSError, NotHeld):
        return False


def parsed(root: str, path: str, parse: "Callable[..., T]", *arguments: object) -> "T":
    """What `parse` makes of the text of a file, stripped. Raises OSError, ValueError."""
    return parse(bare(read(root, path)), *arguments)


def either(root: str, place: str, *ways: "tuple[str, Callable[[str], T]]") -> "T":
    """What the first of these (file, parse) that is there gives. Raises OSError, ValueError; of
    files that are all missing for the first."""
    missing = []
    for file, parse in ways:
        try:
            return parsed(root, place + file, parse)
        except FileNotFoundError as error:
            missing.append(error)
    raise missing[0]


def parse_rows(text: str) -> "dict[str, str]":
    """Rows of the form "key: value" as a dict; of equal keys the first.

    >>> parse_rows("MemTotal:   16 kB\\nMemFree:   8 kB")
    {'MemTotal': '16 kB', 'MemFree': '8 kB'}
    """
    rows: "dict[str, str]" = {}
    for row in text.splitlines():
        key, colon, value = row.partition(":")
        if colon:
            rows.setdefault(key.strip(), value.strip())
    return rows


def pick(rows: "dict[str, str]", path: str, *keys: str) -> str:
    """The value of the first of these keys that has one. Raises ValueError."""
    for key in keys:
        if rows.get(key):
            return rows[key]
    raise ValueError("no {} in {}".format(" or ".join(keys), path))


def parse_words(text: str) -> "list[str]":
    """The words of a text, in its order."""
    return text.split()


def integer(text: str) -> int:
    """A decimal integer as the kernel prints it, of at most 64 bits.

    >>> integer("-1")
    -1
    """
    text = text.strip()
    if not re.match(r"-?[0-9]{1,20}\Z", text):
        raise ValueError("not a number: {}".format(quote(text)))
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("beyond 64 bits: {}".format(text))
    return value


def flag(text: str) -> bool:
    """0 or 1 as a bool. Raises ValueError."""
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1: {}".format(quote(text)))
    return text == "1"


def link_name(root: str, path: str) -> str:
    """The last part of a symbolic link's target. Raises OSError."""
    place = os.path.join(path_under(root, os.path.dirname(path)), os.path.basename(path))
    try:
        target = os.readlink(os.fsencode(place)).decode("utf-8", "backslashreplace")
    except (FileNotFoundError, NotADirectoryError):
        tell_missing(root, path)
        raise
    return os.path.basename(target.rstrip("/"))


def names(root: str, path: str, limit: int = ENTRIES) -> "list[str]":
    """The names in a directory, sorted. Raises OSError, ValueError beyond `limit` of them."""
    found: "list[str]" = []
    try:
        listed = os.scandir(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        tell_missing(root, path)
        raise
    with listed as entries:
        for entry in entries:
            if len(found) == limit:
                raise ValueError("{} has more than {} entries".format(path, limit))
            found.append(entry.name)
    return sorted(found)


def hold_etc(root: str) -> None:
    """Raise Absent for a tree without /etc: no file in it says nothing of the machine."""
    if not os.path.isdir(path_under(root, "/etc")):
        raise Absent("there is no /etc")


def numbered(root: str, path: str, prefix: str, limit: int) -> "list[int]":
    """The numbers N of the entries `<prefix>N` of a directory, sorted. Raises like `names`."""
    pattern = re.compile(re.escape(prefix) + r"([0-9]{1,7})\Z")
    matches = [pattern.match(name) for name in names(root, path)]
    found = sorted(int(match.group(1)) for match in matches if match)
    if len(found) > limit:
        raise ValueError("{} has more than {} entries {}N".format(path, limit, prefix))
    return found


def quote(text: str) -> str:
    """Text from a file, short and in ASCII, for an error's sentence."""
    return ascii(text if len(text) <= 60 else text[:60] + "...")


def reason(error: "BaseException") -> str:
    """Why a value could not be read: an errno's name or a sentence."""
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    if isinstance(error, ValueError):
        return str(error)[:200]
    return "{}: {}".format(type(error).__name__, error)[:200]


def silent(text: str) -> None:
    """The `note` of a collector that is called by itself."""


def attempt(function: "Callable[..., T]", *arguments: object) -> "tuple[T | None, Any]":
    """(what the function returns, None), or (None, why it could not)."""
    try:
        return function(*arguments), None
    except (OSError, ValueError, LookupError) as error:
        return None, reason(error)


class Reading(dict):  # type: ignore[type-arg] # Python 3.6 has no dict[str, object]
    """A JSON object in which a value that could not be read is null, and why.

    >>> record = Reading()
    >>> record.take("governor", read, "/", "/no/such/file")
    >>> record
    {'errors': {'governor': 'ENOENT'}, 'governor': None}
    """

    def __init__(self, **known: object) -> None:
        super().__init__(errors={}, **known)

    def take(self, field: str, function: "Callable[..., object]", *arguments: object) -> None:
        """Set `field` to what the function returns, or to None and the reason."""
        value, why = attempt(function, *arguments)
        if why is None:
            self[field] = value
        else:
            self.fail(field, why)

    def fail(self, field: str, why: str) -> None:
        self[field] = None
        self["errors"][field] = why

    def fail_all(self, fields: "Iterable[str]", why: str) -> None:
        for field in fields:
            self.fail(field, why)
