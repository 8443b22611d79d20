"""What the fixes of the kernel's command line share: the boot loader, and how a parameter is added.

nodevet changes GRUB of Debian and Ubuntu itself: a file of its own in /etc/default/grub.d for each
fix, and `update-grub`. It adds parameters there and removes those that it added; what stands in
other files is the administrator's. For other boot loaders it names the command that a person runs.
"""

import re
from collections.abc import Sequence

import msgspec

from nodevet.evidence.bootloader import Bootloader, CommandLineSetting
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fixing.model import FixError, join_notes
from nodevet.resource import Actions, Resource
from nodevet.resource.boot_once import boot_once
from nodevet.resource.boot_parameter import WORD, update
from nodevet.resource.file import WriteFile

ASKS = {"bootloader": ("grub",)}
ROOT = re.compile(r"root\w*|r[ow]|(rd)?init(rd)?|resume\w*|systemd\.unit|single|rescue|emergency")
"""Without these parameters, or with others, the node may not find its root or what to start."""
FILE = "/etc/default/grub.d/zz-nodevet-{}.cfg"
SCRIPT = "/etc/grub.d/99_nodevet-{}"
OWN = re.compile(r"/etc/default/grub\.d/zz-nodevet-[a-z-]+\.cfg")
TEXT = """\
# Written by nodevet for {name}: read by update-grub.
if [ -z "${{NODEVET_FIRST-}}" ]; then
    NODEVET_FIRST={name}
    NODEVET_EARLIER="$GRUB_CMDLINE_LINUX_DEFAULT"
    export NODEVET_FIRST NODEVET_EARLIER
fi
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {words}"
"""
"""At the end of the command line: of most parameters the last value counts."""
ONCE = """\
# Written by nodevet for {name}: what the last line adds is only in the menu of one boot.
NODEVET_BEFORE="$GRUB_CMDLINE_LINUX_DEFAULT"
{text}[ -z "${{NODEVET_ONCE-}}" ] || GRUB_CMDLINE_LINUX_DEFAULT="$NODEVET_BEFORE {words}"
"""
"""Around the file as it was, whose words the last line replaces."""
ENTRY_SCRIPT = "/etc/grub.d/98_nodevet-once-{}"
ENTRY = """\
#!/bin/sh
# Written by nodevet for {name}: the entry that reads the menu of one boot.
[ -z "${{NODEVET_ONCE-}}" ] || exit 0
cat <<'END'
menuentry 'nodevet: new command line, for one boot' --unrestricted --id 'nodevet-once' {{
    set boot_once=true
    export boot_once
    configfile $prefix/nodevet-once.cfg
}}
END
"""
"""boot_once keeps GRUB_SAVEDEFAULT=true from making that entry the default."""
ENTRIES = """\
#!/bin/sh
# Written by nodevet for {name}: entries without the parameters that nodevet added.
[ "${{NODEVET_FIRST-}}" = {name} ] || exit 0
export GRUB_CMDLINE_LINUX_DEFAULT="$NODEVET_EARLIER"
export GRUB_DISTRIBUTOR="$GRUB_DISTRIBUTOR before nodevet"
/etc/grub.d/10_linux | sed "s/'gnulinux-/'nodevet-earlier-/"
"""
"""If several fixes have such a script, only the first one's writes entries."""
NOTE = "GRUB's menu keeps entries without nodevet's parameters, named `before nodevet`"
TRIED = "GRUB boots the new command line once; it becomes the default after the check passed"
AT_ONCE = "the new command line becomes GRUB's default before a boot has proved it: {}"
NO_REBOOT = "plan with --reboot to try it first"
GRUB, KERNEL_INSTALL = "update-grub", "/etc/kernel/cmdline"
FIRST = ("grubby", "sdbootutil", "grub2-mkconfig")
"""The programs of RHEL and SUSE; if a node has several, nodevet takes the first."""
OPTIONS = {
    "grubby": ("grubby --update-kernel=ALL", "--args=", "--remove-args="),
    "kernelstub": ("kernelstub", "-a ", "-d "),
}
FILES = {
    KERNEL_INSTALL: (KERNEL_INSTALL, "`kernel-install add` for each kernel"),
    "sdbootutil": (KERNEL_INSTALL, "`sdbootutil update-all-entries`"),
    "grub2-mkconfig": ("/etc/default/grub", "`grub2-mkconfig -o /boot/grub2/grub.cfg`"),
}
"""What a person runs: a command with its options to add and remove; or after editing a file."""


class Grub(msgspec.Struct, frozen=True):
    """What update-grub reads and wrote; every value was read."""

    entries: tuple[str, ...]
    settings: tuple[CommandLineSetting, ...]
    once: str  # why GRUB cannot boot an entry once


class BootWords(msgspec.Struct, frozen=True):
    """The words that nodevet's file of one fix adds, and those that it no longer adds. `own`: those
    that it adds now. `at_once`: why no boot tries them before they are the default."""

    fix: str
    words: tuple[str, ...]
    removed: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    at_once: str = ""

    @property
    def name(self) -> str:
        return self.fix.replace("_", "-")

    @property
    def actions(self) -> Actions:
        return self._default_actions if self.at_once else self._boot_once_actions

    @property
    def keep(self) -> Actions:
        if self.at_once:
            return ()
        entry = WriteFile(path=ENTRY_SCRIPT.format(self.name), content=None, mode=0o755)
        return (entry, *self._default_actions)

    @property
    def _default_actions(self) -> Actions:
        """The words in every entry, and entries without them."""
        script = ENTRIES.format(name=self.name) if self.words else None
        return (
            WriteFile(path=FILE.format(self.name), content=self._text(self.words)),
            WriteFile(path=SCRIPT.format(self.name), content=script, mode=0o755),
            update(self.words, self.removed),
        )

    @property
    def _boot_once_actions(self) -> Actions:
        """The words in the menu of one boot."""
        now = self._text(self.own) or ""
        text = ONCE.format(name=self.name, text=now, words=" ".join(self.words))
        entry = ENTRY.format(name=self.name)
        return (
            WriteFile(path=FILE.format(self.name), content=text),
            WriteFile(path=ENTRY_SCRIPT.format(self.name), content=entry, mode=0o755),
            boot_once(self.name, self.words, self.removed),
        )

    def _text(self, words: Sequence[str]) -> str | None:
        return TEXT.format(name=self.name, words=" ".join(words)) if words else None

    @property
    def resources(self) -> tuple[Resource, ...]:
        actions = (*self.actions, *self.keep)
        files = dict.fromkeys(action.resource for action in actions if action.resource)
        names = dict.fromkeys(word.partition("=")[0] for word in (*self.words, *self.removed))
        parameters = (Resource(kind="boot_parameter", name=name) for name in names)
        once = () if self.at_once else (Resource(kind="boot_once", name=self.name),)
        return (*files, *parameters, *once)

    @property
    def note(self) -> str:
        entries = NOTE if self.words else ""
        return join_notes(AT_ONCE.format(self.at_once) if self.at_once else TRIED, entries)


def boot_words(
    fix: str,
    evidence: Evidence,
    present: Sequence[str],
    missing: Sequence[str],
    *,
    reboot: bool = False,
) -> BootWords:
    """What nodevet's file of this fix must add: of `present`, the missing words and those that it
    already has. `reboot`: the plan reboots the node, so one boot can try them first. Raises
    FixError if it cannot add one."""
    for word in missing:
        check_word(word)
    grub = grub_of(evidence, missing, ())
    own_words, path = words_added(fix, grub), FILE.format(fix.replace("_", "-"))
    later = [row for row in grub.settings if row.file > path and not OWN.fullmatch(row.file)]
    if missing and later:
        raise FixError(f"{place(later[0])} is read after {path}: rename it so that it sorts before")
    for word in missing:
        name = word.partition("=")[0]
        if places := places_of(name, fix, grub):
            has_word = any(word in words_in(row.text) for row in places)
            what = (
                "already has it: run update-grub and reboot"
                if has_word
                else "sets it: change it there"
            )
            raise FixError(f"{place(places[0])} {what}")
    words = tuple(word for word in dict.fromkeys(present) if word in (*missing, *own_words))
    removed = tuple(word for word in own_words if word not in words)
    return BootWords(fix, words, removed, own_words, grub.once if reboot else NO_REBOOT)


def check_own_parameter(fix: str, evidence: Evidence, parameter: str) -> None:
    """Raises FixError unless nodevet's own file of this fix, and nothing else, adds a parameter
    that must be absent."""
    check_word(parameter)
    grub = grub_of(evidence, (), (parameter,))
    name, equals, _ = parameter.partition("=")
    if places := places_of(name, fix, grub):
        raise FixError(f"{place(places[0])} has it: remove it there, run update-grub and reboot")
    is_own = any(
        word == parameter or not equals for word in words_added(fix, grub) if is_of(word, name)
    )
    if not is_own and any(is_of(word, name) for entry in grub.entries for word in entry.split()):
        raise FixError(
            "nodevet does not see what adds it: look in /etc/default/grub* and /etc/grub.d"
        )
    if not is_own:
        raise FixError("no entry of GRUB has it: reboot; if it stays, find out what boots the node")


def check_word(word: str) -> None:
    """Raises FixError for a word that nodevet writes into no command line."""
    if not WORD.fullmatch(word):
        raise FixError("nodevet writes only letters, digits and _.,:+/@%~- into a command line")
    if ROOT.fullmatch(word.partition("=")[0]):
        raise FixError("nodevet does not change where the node boots from, or what it starts")


def grub_of(evidence: Evidence, missing: Sequence[str], unwanted: Sequence[str]) -> Grub:
    """GRUB of Debian or Ubuntu, if the node boots by it, and if its menu is as its settings say.
    Otherwise raises FixError, which says what a person must do."""
    section = evidence[Bootloader]
    data = section.data
    if data is None:
        raise FixError(f"bootloader: {section.why}")
    for field in ("programs", "files", "entries", "settings", "newer"):
        if getattr(data, field) is None:
            raise FixError(f"bootloader: {field}: {data.why(field)}")
    loader = loader_of(data)
    if loader != GRUB:
        raise FixError(f"nodevet does not change {loader}: {by_hand(loader, missing, unwanted)}")
    once = data.why("once") if data.once is None else data.once
    grub = Grub(data.entries or (), data.settings or (), once[:200])
    host = evidence[HostInfo].data
    roots = {word for entry in grub.entries for word in entry.split() if word.startswith("root=")}
    if host is None or host.cmdline is None or roots.isdisjoint(host.cmdline.split()):
        raise FixError(
            "the running kernel has another root= than GRUB's entries: find out what booted it"
        )
    if any("--" in entry.split() for entry in grub.entries):
        raise FixError(
            "the command line has `--`: the kernel would not read what nodevet adds after it"
        )
    if data.newer:
        raise FixError(
            f"{data.newer[0][:200]} is newer than GRUB's menu: run update-grub, then plan again"
        )
    return grub


def loader_of(data: Bootloader) -> str:
    """The program or the file that sets the command line. Raises FixError unless it is one."""
    programs, files = data.programs or (), data.files or ()
    loaders = [name for name in (GRUB, "kernelstub") if name in programs]
    loaders += [name for name in FIRST if name in programs][:1]
    if KERNEL_INSTALL in files and not set(loaders) & set(FIRST):
        loaders.append(KERNEL_INSTALL)
    if len(loaders) > 1:
        raise FixError(
            f"the node has {' and '.join(loaders)}: nodevet cannot tell which one boots it"
        )
    if not loaders or (loaders == [GRUB] and not data.entries):
        raise FixError("the node has no boot loader that nodevet knows, or no entry for Linux")
    return loaders[0]


def by_hand(loader: str, missing: Sequence[str], unwanted: Sequence[str]) -> str:
    """What a person does with another boot loader."""
    add, remove = " ".join(missing), " ".join(unwanted)
    if loader in OPTIONS:
        command, adds, removes = OPTIONS[loader]
        options = [f"{adds}'{add}'"] * bool(add) + [f"{removes}'{remove}'"] * bool(remove)
        return f"run `{' '.join([command, *options])}` and reboot"
    file, command = FILES[loader]
    changes = [f"add {add}"] * bool(add) + [f"remove {remove}"] * bool(remove)
    return f"in {file} {' and '.join(changes)}, run {command}, and reboot"


def words_added(fix: str, grub: Grub) -> tuple[str, ...]:
    """The words that nodevet's file of this fix adds now."""
    path = FILE.format(fix.replace("_", "-"))
    rows = [row for row in grub.settings if row.file == path]
    return tuple(word for row in rows for word in words_in(row.text) if WORD.fullmatch(word))


def places_of(name: str, fix: str, grub: Grub) -> list[CommandLineSetting]:
    """The settings that name a parameter, without those of nodevet's file of this fix."""
    path = FILE.format(fix.replace("_", "-"))
    return [
        row
        for row in grub.settings
        if row.file != path and any(is_of(word, name) for word in words_in(row.text))
    ]


def words_in(text: str) -> list[str]:
    """The words of a value that a shell reads, without its quotes."""
    return re.sub("[\"']", " ", text).split()


def is_of(word: str, name: str) -> bool:
    """Whether a word gives this parameter; the kernel takes dashes as underscores."""
    return word.partition("=")[0].replace("-", "_") == name.replace("-", "_")


def place(row: CommandLineSetting) -> str:
    return f"{row.file[:200]}:{row.line}"
