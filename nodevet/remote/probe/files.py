"""Reads kernel files under a root; each value fails alone.

Symbolic links under a root other than / resolve inside that root, as after chroot(2): a captured
tree never leads to the machine it lies on.
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

LIMIT = 1 << 20  # bytes of a file that is read whole
CHUNK = 1 << 16  # bytes in one read(2)
HEAD = 1 << 16  # bytes of a file whose beginning is enough
LINE = 4096  # characters; the longest kernel command line
ENTRIES = 1 << 16  # names in a directory
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel
SYSFS = ("/sys/devices/", "/sys/bus/", "/sys/class/")
KERNEL_FILES = SYSFS + ("/proc/",)
ELSEWHERE = re.compile(r"/(?:\.\.|cwd|exe|fd|map_files|root)(?:/|\Z)")  # what leads out of them
READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
ATTRIBUTE = 4096  # bytes; a sysfs attribute has one page: a shorter read is all of it
INTEGER = re.compile(r"-?[0-9]{1,20}\Z")
LINKS = 40  # symbolic links in one path, the kernel's limit


class Absent(Exception):  # noqa: N818
    """The node has no such thing; the message says what is missing."""


class SectionError(Exception):
    """A section as a whole cannot be read; the message is its reason."""


class TransientError(SectionError):
    """A section cannot be read in a state of the node that passes by itself."""


class Denied(SectionError):  # noqa: N818
    """This user may not read a section; the message says who may."""


class NotHeld(SectionError, ValueError):  # noqa: N818
    """A file is not in a tree that may hold only a part of the machine."""

    def __init__(self, path: str) -> None:
        super().__init__("{} is not in this tree, which may be a part of the machine".format(path))


class PartialRoot(str):
    """The root of a tree that may hold only a part of a machine, as a support bundle does."""


def check_held(root: str, path: str) -> None:
    """Raise NotHeld if a file that `root` lacks may still be on the machine.

    A tree holds folders of /sys and /proc whole, but not every top folder, and not every folder of
    /sys/devices/system.
    """
    if not isinstance(root, PartialRoot):
        return
    folder = os.path.dirname(path.rstrip("/"))
    kernel = path.startswith(("/sys/", "/proc/")) and folder != "/sys/devices/system"
    if not (kernel and folder.count("/") > 2 and os.path.isdir(path_under(root, folder))):
        raise NotHeld(path)


def real_folder(root: str, folder: str) -> str:
    """The folder of a device that /sys/bus or /sys/class link to, on this machine: the kernel then
    follows the link once, and not for each file. These links are relative to a folder that is no
    link, fs/sysfs/symlink.c. Unchanged in other trees."""
    if root != "/":
        return folder
    link = folder.rstrip("/")
    try:
        return os.path.normpath(link + "/../" + os.readlink(link)) + "/"
    except OSError:
        return folder


def resolve(root: str, path: str) -> str:
    """The absolute `path` with all links resolved inside `root`. Raises OSError."""
    if root == "/":
        return os.path.realpath(path)
    directory, name = os.path.split(path.rstrip("/"))
    return _follow_links(root, _directory(root, directory), name)


@lru_cache(maxsize=4096)
def _directory(root: str, path: str) -> str:
    """`resolve`, cached: a captured tree does not change."""
    return _follow_links(root, "", path)


def _follow_links(root: str, resolved: str, path: str) -> str:
    """Resolve `path` below a resolved directory."""
    parts, links = path.split("/"), 0
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            resolved = resolved.rpartition("/")[0]
            continue
        try:
            target = os.readlink(root + resolved + "/" + part)
        except OSError:  # not a link, or missing: open(2) reports it later
            resolved += "/" + part
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            resolved = ""
        parts = target.split("/") + parts
    return resolved


def path_under(root: str, path: str) -> str:
    """The path on this machine of the absolute `path`, links resolved inside `root`."""
    return path if root == "/" else root + resolve(root, path)


def status_of(root: str, path: str) -> "os.stat_result":
    """os.stat of a path under `root`. Raises OSError, NotHeld."""
    try:
        return os.stat(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        check_held(root, path)
        raise


def exists(root: str, path: str) -> bool:
    """Whether a file or folder exists. Raises NotHeld."""
    if os.path.exists(path_under(root, path)):
        return True
    check_held(root, path)
    return False


def read_bytes(
    root: str, path: str, limit: int, look: "Callable[[int], object] | None" = None
) -> bytes:
    """At most `limit` bytes from the start of a regular file. Raises OSError, ValueError, and what
    `look` raises, which gets the open descriptor first."""
    is_kernels = root == "/" and path.startswith(KERNEL_FILES) and not ELSEWHERE.search(path)
    try:
        file = (os.open if is_kernels else open_regular)(path_under(root, path), READ_ONLY)
    except (FileNotFoundError, NotADirectoryError):
        check_held(root, path)
        raise
    try:
        # a read of fewer bytes is the last one
        size, last = (ATTRIBUTE, ATTRIBUTE) if path.startswith(SYSFS) else (CHUNK, 1)
        if look:
            look(file)
        chunk = os.read(file, min(limit, size))
        data = bytearray(chunk)
        while len(chunk) >= last and len(data) < limit:
            chunk = os.read(file, min(limit - len(data), size))
            data += chunk
        return bytes(data)
    finally:
        os.close(file)


def open_regular(path: str, flags: int = READ_ONLY) -> int:
    """A descriptor of a regular file. Raises OSError, ValueError.

    Users choose some of the paths that root reads, and may replace a file at any time. To open a
    device may do something: a watchdog resets the machine. O_PATH opens a file only to look at it.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise ValueError("not a regular file")
        try:
            return os.open("/proc/self/fd/{}".format(place), flags)
        except FileNotFoundError:  # there is no /proc: a captured tree, whose files nobody replaces
            return os.open(path, flags)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(place)


def read(root: str, path: str, look: "Callable[[int], object] | None" = None) -> str:
    """The text of a file, undecodable bytes escaped. Raises as `read_bytes`."""
    data = read_bytes(root, path, LIMIT + 1, look)
    if len(data) > LIMIT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data.decode("utf-8", "backslashreplace")


def head(root: str, path: str) -> str:
    """The beginning of a long file (/proc/cpuinfo). Raises OSError, ValueError."""
    return read_bytes(root, path, HEAD).decode("utf-8", "backslashreplace")


def stripped(text: str) -> str:
    """A text without white space around it and without a final NUL.

    >>> stripped(" 0-1\\n\\0")
    '0-1'
    """
    return text.strip().rstrip("\0").strip()


def line(root: str, path: str) -> str:
    """The stripped text of a file of one line. Raises OSError, ValueError."""
    return one_line(stripped(read(root, path)))


def one_line(text: str) -> str:
    """The stripped text of a file of one line. Raises ValueError."""
    if not text:
        raise ValueError("the file is empty")
    if len(text) > LINE:
        raise ValueError("longer than {} characters".format(LINE))
    return text


def is_this_machine(root: str, whole_machine: bool = False) -> bool:
    """Whether the tree under `root` is of the running kernel, as NVML and the clock are: /, the
    same machine mounted elsewhere (a container's /host), or by the request's `whole_machine`."""
    if root == "/" or whole_machine:
        return True
    try:
        return read(root, BOOT_ID) == read("/", BOOT_ID)
    except (OSError, NotHeld):
        return False


def parsed(root: str, path: str, parse: "Callable[..., T]", *arguments: object) -> "T":
    """`parse` of a file's stripped text. Raises OSError, ValueError."""
    return parse(stripped(read(root, path)), *arguments)


def first_readable(root: str, folder: str, *readers: "tuple[str, Callable[[str], T]]") -> "T":
    """`parse` of the first existing file of these (file, parse). Raises OSError, ValueError; if all
    are missing, the first one's error."""
    errors = []
    for file, parse in readers:
        try:
            return parsed(root, folder + file, parse)
        except FileNotFoundError as error:
            errors.append(error)
    raise errors[0]


def text_lines(text: str) -> "list[str]":
    r"""The lines of a text. str.splitlines would end them at other characters, too: users put those
    into names of processes, folders and cgroups, and the kernel escapes only newlines.

    >>> text_lines("Name:\ta\rUid:\t0\nUid:\t1000\n")
    ['Name:\ta\rUid:\t0', 'Uid:\t1000']
    """
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def parse_rows(text: str) -> "dict[str, str]":
    """{key: value} of rows "key: value"; of equal keys the first.

    >>> parse_rows("MemTotal:   16 kB\\nMemFree:   8 kB")
    {'MemTotal': '16 kB', 'MemFree': '8 kB'}
    """
    rows: "dict[str, str]" = {}
    for row in text_lines(text):
        key, colon, value = row.partition(":")
        if colon:
            rows.setdefault(key.strip(), value.strip())
    return rows


def split_stat(text: str, least: int = 20) -> "tuple[str, list[str]]":
    """(command, fields behind it) of /proc/<pid>/stat. Raises ValueError below `least` fields.

    The command is in parentheses, and may have spaces and parentheses itself.
    """
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 1 :].split()
    if not 0 <= start < end or len(fields) < least:
        raise ValueError("not a process's stat: {}".format(quote(text)))
    return text[start + 1 : end], fields


def pick(rows: "dict[str, str]", path: str, *keys: str) -> str:
    """The first non-empty value of these keys. Raises ValueError."""
    for key in keys:
        if rows.get(key):
            return rows[key]
    raise ValueError("no {} in {}".format(" or ".join(keys), path))


def integer(text: str) -> int:
    """A decimal integer of at most 64 bits.

    >>> integer("-1")
    -1
    """
    text = text.strip()
    if not INTEGER.match(text):
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
    """The last part of a symbolic link's target. Raises OSError, NotHeld."""
    folder = path_under(root, os.path.dirname(path))
    link = os.path.join(folder, os.path.basename(path))
    try:
        target = os.readlink(os.fsencode(link)).decode("utf-8", "backslashreplace")
    except (FileNotFoundError, NotADirectoryError):
        check_held(root, path)
        check_links_held(root, folder, path)
        raise
    return os.path.basename(target.rstrip("/"))


def check_links_held(root: str, folder: str, path: str) -> None:
    """Raise NotHeld if a tree may hold the files of a device, but not its links: every device in
    /sys has the link `subsystem`."""
    if isinstance(root, PartialRoot) and not os.path.islink(os.path.join(folder, "subsystem")):
        raise NotHeld(path)


def names(root: str, path: str, limit: int = ENTRIES) -> "list[str]":
    """The sorted names in a directory. Raises OSError, ValueError above `limit`."""
    entry_names: "list[str]" = []
    try:
        directory = os.scandir(path_under(root, path))
    except (FileNotFoundError, NotADirectoryError):
        check_held(root, path)
        raise
    with directory as entries:
        for entry in entries:
            if len(entry_names) == limit:
                raise ValueError("{} has more than {} entries".format(path, limit))
            entry_names.append(entry.name)
    return sorted(entry_names)


def names_or_empty(root: str, path: str) -> "list[str]":
    """`names`; empty without the directory. Raises OSError, ValueError."""
    try:
        return names(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def hold_etc(root: str) -> None:
    """Raise Absent for a tree without /etc."""
    if not os.path.isdir(path_under(root, "/etc")):
        raise Absent("there is no /etc")


def numbered(root: str, path: str, prefix: str, limit: int) -> "list[int]":
    """The sorted N of the entries `<prefix>N` of a directory. Raises like `names`."""
    pattern = re.compile(re.escape(prefix) + r"([0-9]{1,7})\Z")
    matches = [pattern.match(name) for name in names(root, path)]
    numbers = sorted(int(match.group(1)) for match in matches if match)
    if len(numbers) > limit:
        raise ValueError("{} has more than {} entries {}N".format(path, limit, prefix))
    return numbers


def quote(text: str) -> str:
    """A text in short ASCII, for a message."""
    return ascii(text if len(text) <= 60 else text[:60] + "...")


def reason(error: "BaseException") -> str:
    """Why a value could not be read: an errno's name or a sentence."""
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    if isinstance(error, ValueError):
        return str(error)[:200]
    return "{}: {}".format(type(error).__name__, error)[:200]


def no_note(text: str) -> None:
    """The `note` of a collector outside a lane."""


def attempt(function: "Callable[..., T]", *arguments: object) -> "tuple[T | None, Any]":
    """(the function's result, None), or (None, reason)."""
    try:
        return function(*arguments), None
    except (OSError, ValueError, LookupError) as error:
        return None, reason(error)


class Reading(dict):  # type: ignore[type-arg] # Python 3.6 has no dict[str, object]
    """A JSON object; a value that could not be read is null, with a reason in `errors`.

    >>> record = Reading()
    >>> record.take("governor", read, "/", "/no/such/file")
    >>> record
    {'errors': {'governor': 'ENOENT'}, 'governor': None}
    """

    def __init__(self, **values: object) -> None:
        super().__init__(errors={}, **values)

    def take(self, field: str, function: "Callable[..., object]", *arguments: object) -> None:
        """Set `field` to the function's result, or to None with a reason."""
        value, why = attempt(function, *arguments)
        self[field] = value
        if why is not None:
            self["errors"][field] = why

    def put(self, field: str, value: object, why: str) -> None:
        """Set `field` to a value, or to None with the reason if it is None."""
        self[field] = value
        if value is None:
            self["errors"][field] = why

    def fail(self, field: str, why: str) -> None:
        self[field] = None
        self["errors"][field] = why

    def fail_all(self, fields: "Iterable[str]", why: str) -> None:
        for field in fields:
            self.fail(field, why)
