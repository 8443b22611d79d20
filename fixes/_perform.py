"""Actions as pyinfra's commands: the only place where one becomes the other.

Each action is one command of sh, in one line. Every value in it is quoted; what the node says
when it fails is on stderr, as its own tools say it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.exceptions import OperationError

from nodevet.resource import Action, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

SECONDS = 45  # for a unit to start or stop
LOG_LINES = 20  # of a unit that fails
VALUE = 4096  # bytes; one write(2) of dd, and longer than any value of the kernel
FOLDERS = re.compile(  # those that a file may bring along, mode 0755
    r"/etc/(tmpfiles|sysctl|modprobe|modules-load|udev/rules)\.d|/etc/systemd/system"
    r"|/etc/systemd/system/[^/]+\.d"
)
DROP_INS = re.compile(r"/etc/systemd/system/[^/]+\.d")  # one that is empty says nothing
UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(service|socket|timer|target|path|swap)")


class ActionError(OperationError):
    """An action that is never run; the message says why."""


def perform(actions: Iterable[Action], *, seconds: float = SECONDS) -> Iterator[StringCommand]:
    """One command for each action. `seconds`: how long a unit may take to start or stop.

    Raises ActionError for an action that cannot be what somebody wanted.
    """
    for action in actions:
        match action:
            case WriteFile(content=None):
                yield _remove(action.path)
            case WriteFile():
                yield _write(action)
            case WriteKernel():
                yield _kernel(action)
            case SetUnit():
                yield _unit(action, seconds)
            case RunCommand():
                yield _run(action)
            case _:
                raise ActionError(f"not an action: {action!r}")


def _write(file: WriteFile) -> StringCommand:
    """A new file beside the old one, whole and on the disk, takes its place by rename(2).

    The content goes through stdin with its SHA-256 in the command: a connection that is cut
    off in the middle leaves the old file.
    """
    content = (file.content or "").encode("utf-8", "surrogateescape")
    folder, opening = _opening(file.path)
    if FOLDERS.fullmatch(folder):
        missing = StringCommand('[ -d "$d" ] || mkdir -m 755 -- "$d" || exit 1;')
    else:
        missing = StringCommand('[ -d "$d" ] || { echo "$d is not a directory" >&2; exit 1; };')
    return StringCommand(
        "umask 077;",
        opening,
        missing,
        _NO_OTHER,
        't=$(mktemp -- "$s"XXXXXX) || exit 1;',
        "trap 'rm -f -- \"$t\"' EXIT; trap 'exit 1' HUP INT TERM;",
        'base64 -d >"$t" || exit 1;',
        f'[ "$(sha256sum <"$t")" = "{hashlib.sha256(content).hexdigest()}  -" ] ||',
        '{ echo "the content did not arrive whole" >&2; exit 1; };',
        f'chown {int(file.owner)}:{int(file.group)} -- "$t" &&',
        f'chmod {_mode(file.mode)} -- "$t" &&',
        'sync -- "$t" && mv -fT -- "$t" "$f" && sync -- "$d"',
        _stdin=base64.b64encode(content).decode("ascii"),
    )


def _remove(path: str) -> StringCommand:
    folder, opening = _opening(path)
    empty = ' && { rmdir -- "$d" 2>/dev/null; :; }' if DROP_INS.fullmatch(folder) else ""
    return StringCommand(
        opening,
        '[ -d "$d" ] || exit 0;',
        _NO_OTHER,
        f'rm -f -- "$f" && sync -- "$d"{empty}',
    )


_NO_OTHER = StringCommand(
    'if [ -L "$f" ] || { [ -e "$f" ] && [ ! -f "$f" ]; };',
    'then echo "$f is not a regular file" >&2; exit 1; fi;',
    'rm -f -- "$s"??????;',  # what a crash of the node left there
)


def _opening(path: str) -> tuple[str, StringCommand]:
    """The folder, and $f the file, $d its folder, $s how its temporary ones begin."""
    parts = PurePosixPath(_clean(path, "path"))
    if not parts.is_absolute() or ".." in parts.parts or str(parts) != path:
        raise ActionError(f"{path!r} is not an absolute path in its plain form")
    folder = str(parts.parent)
    start = str(parts.parent / f".{parts.name}.nodevet.")
    pairs = (("f", path), ("d", folder), ("s", start))
    bits = [
        StringCommand(f"{key}=", QuoteString(value), ";", _separator="") for key, value in pairs
    ]
    return folder, StringCommand(*bits)


def _mode(mode: int) -> str:
    if not 0 <= mode <= 0o7777:
        raise ActionError(f"{mode!r} is not the mode of a file")
    return f"{mode:04o}"


def _kernel(action: WriteKernel) -> StringCommand:
    """One write(2), as the kernel wants it; dd names the errno, and makes no file."""
    parts = PurePosixPath(_clean(action.path, "path"))
    if parts.parts[:2] not in (("/", "sys"), ("/", "proc")) or ".." in parts.parts:
        raise ActionError(f"{action.path!r} is no file of /sys or /proc")
    if not 0 < len(_clean(action.value, "value").encode()) < VALUE:
        raise ActionError(f"{action.path}: a value is between 1 and {VALUE} bytes long")
    target = StringCommand("of=", QuoteString(str(parts)), _separator="")
    dd = StringCommand(
        "LC_ALL=C dd", target, f"bs={VALUE} count=1 conv=notrunc,nocreat status=none"
    )
    return StringCommand("printf %s", QuoteString(action.value), "|", dd)


def _unit(unit: SetUnit, seconds: float) -> StringCommand:
    """systemd reads its files anew, then mask, enablement and state; its log where that fails.

    A unit that does not exist is neither enabled nor running, and need not be made so.
    """
    if not UNIT.fullmatch(_clean(unit.name, "unit")):
        raise ActionError(f"{unit.name!r} is not the name of a unit")
    name = QuoteString(unit.name)
    verbs = [] if unit.masked is not False else ["systemctl --quiet unmask"]
    if unit.enabled is not None:
        verbs.append(f"systemctl --quiet {'enable' if unit.enabled else 'disable'}")
    if unit.running is False:
        state = "stop"
    elif unit.running:
        state = "restart" if unit.restart else "start"
    else:
        state = "try-restart" if unit.restart else ""
    if state:
        verbs.append(f"timeout -k 5 {max(1, round(seconds))} systemctl {state}")
    if unit.masked:
        verbs.append("systemctl --quiet mask")
    bits: list[str | StringCommand | QuoteString] = ["export LC_ALL=C; systemctl daemon-reload"]
    if not (unit.enabled or unit.running or unit.masked is not None):
        absent = StringCommand("systemctl show -p LoadState --", name)
        bits += ["&& case $(", absent, ") in LoadState=not-found) exit 0;; esac"]
    for verb in verbs:
        bits += ["&&", verb, "--", name]
    status = StringCommand("systemctl status --no-pager --full --lines=0 --", name)
    log = StringCommand(f"journalctl --no-pager --quiet --output=cat --lines={LOG_LINES} -u", name)
    bits += ["|| { c=$?;", status, ";", log, "; exit $c; } >&2"]
    return StringCommand(*bits)


def _run(action: RunCommand) -> StringCommand:
    """`exec` takes what follows as a program and its arguments, whatever they look like."""
    if not action.words or not action.words[0] or action.words[0].startswith("-"):
        raise ActionError(f"{list(action.words)!r} names no program")
    for word in action.words:
        if "\0" in word:
            raise ActionError("a word of the command holds a zero byte")
    return StringCommand("exec", *(QuoteString(word) for word in action.words))


def _clean(text: str, what: str) -> str:
    if not text or any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ActionError(f"the {what} {text!r} is empty or holds control characters")
    return text
