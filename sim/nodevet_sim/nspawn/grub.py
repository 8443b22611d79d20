"""What GRUB gives the kernel of a node with a /boot/grub/grub.cfg: the entry that its menu chooses.

It reads the commands that choose an entry: variables, conditions, the variables that GRUB keeps in
grubenv, menus in menus and other menus. It writes grubenv as GRUB does, so `grub-reboot` holds for
one boot. It skips all other commands, waits for nobody and loads nothing.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = "boot/grub"
MOST = 1 << 20  # bytes of a menu
BLOCK, SIGNATURE = 1024, "# GRUB Environment Block\n"
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
LINUX = ("linux", "linux16", "linuxefi")
DEPTH = 4  # menus that an entry opens, one in another


@dataclass
class MenuEntry:
    """An entry of a menu, with the lines of its body."""

    names: frozenset[str]  # its title, and its id if it has one
    body: list[list[str]]
    is_menu: bool


@dataclass
class GrubMenu:
    """One boot. `env`: the variables."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"feature_menuentry_id": "y"})
    depth: int = 0

    def boot(self, name: str = "grub.cfg") -> str | None:
        """The command line of the entry that a menu file chooses; None if it boots no Linux."""
        path = self.root / FOLDER / name
        if self.depth > DEPTH or path.is_symlink() or not path.is_file():
            return None
        self.depth += 1
        with path.open("rb") as menu:
            text = menu.read(MOST).decode("utf-8", "replace")
        entries: list[MenuEntry] = []
        self.run(commands(text), entries)
        return self.choose(entries, self.env.get("default", ""))

    def choose(self, entries: list[MenuEntry], default: str) -> str | None:
        """The command line of an entry: a number, a title or an id, with `>` for a menu in it. Of a
        name that no entry has the first one, as GRUB does."""
        name, _, rest = default.partition(">")
        chosen = [entry for entry in entries if name in entry.names] or entries[
            int(name) if name.isdecimal() and int(name) < len(entries) else 0 :
        ]
        if not chosen:
            return None
        inner: list[MenuEntry] = []
        line = self.run(chosen[0].body, inner)
        return self.choose(inner, rest) if chosen[0].is_menu else line

    def run(self, lines: list[list[str]], entries: list[MenuEntry]) -> str | None:
        """Run commands; add the entries that they define. Returns the command line of the last
        Linux that they load."""
        booted, places = None, iter(lines)
        for words in places:
            match words:
                case ["if", *test]:
                    booted = self.run(self.branch(test, places), entries) or booted
                case ["function", *_]:
                    _body(places)
                case [("menuentry" | "submenu") as kind, *_]:
                    values = [self.expand(word) for word in words]
                    at = values.index("--id") if "--id" in values else len(values)
                    names = frozenset((values[1], *values[at + 1 : at + 2]))
                    entries.append(MenuEntry(names, _body(places), kind == "submenu"))
                case ["set", assignment]:
                    name, _, value = assignment.partition("=")
                    self.env[name] = self.expand(value)
                case ["load_env", *_]:
                    self.env |= grubenv_variables(self.root)
                case ["save_env", *saved]:
                    save(self.root, {name: self.env.get(name, "") for name in saved})
                case ["configfile", path]:
                    booted = self.boot(Path(path).name)
                case [command, kernel, *rest] if command in LINUX:
                    text = " ".join(self.expand(word) for word in rest)
                    booted = f"BOOT_IMAGE={self.expand(kernel)} {text}".strip()
        return booted

    def branch(self, test: list[str], places: Iterator[list[str]]) -> list[list[str]]:
        """The lines of the branch that a condition chooses, up to its `fi`."""
        taken, is_on, was_on, depth = list[list[str]](), self.holds(test), False, 0
        for words in places:
            if words[0] == "fi" and not depth:
                break
            depth += (words[0] == "if") - (words[0] == "fi")
            if words[0] in ("elif", "else") and not depth:
                was_on = was_on or is_on
                is_on = not was_on and (words[0] == "else" or self.holds(words[1:]))
            elif is_on:
                taken.append(words)
        return taken

    def holds(self, test: list[str]) -> bool:
        """Whether a condition holds. Commands other than `[` do not."""
        values = [self.expand(word) for word in test]
        match values:
            case ["[", "-s", path, "]"]:
                file = self.root / FOLDER / Path(path).name
                return file.is_file() and file.stat().st_size > 0
            case ["[", "-n", value, "]"] | ["[", value, "]"]:
                return bool(value)
            case ["[", "-z", value, "]"]:
                return not value
            case ["[", value, "=", other, "]"]:
                return value == other
        return False

    def expand(self, word: str) -> str:
        return VARIABLE.sub(lambda match: self.env.get(match[1] or match[2], ""), word)


def commands(text: str) -> list[list[str]]:
    """The words of each command. A `{` ends the line before a body.

    >>> commands("if [ -s $x ]; then # why\\n  set a='b c'\\nfi")
    [['if', '[', '-s', '$x', ']'], ['set', 'a=b c'], ['fi']]
    """
    rows = []
    for line in text.splitlines():
        lexer = shlex.shlex(line.partition(" # ")[0], posix=True, punctuation_chars=";")
        lexer.whitespace_split, lexer.commenters = True, ""
        if line.lstrip().startswith("#"):
            continue
        try:
            words = list(lexer)
        except ValueError:  # a text of several lines
            continue
        row: list[str] = []
        for word in [*words, ";"]:
            if word and set(word) == {";"}:
                rows += [row] if row else []
                row = []
            elif row or word != "then":
                row.append(word)
    return rows


def _body(places: Iterator[list[str]]) -> list[list[str]]:
    """The lines up to the `}` of a body that was opened."""
    body, depth = list[list[str]](), 1
    for words in places:
        depth += (words[-1] == "{") - (words[0] == "}")
        if not depth:
            break
        body.append(words)
    return body


def grubenv_variables(root: Path) -> dict[str, str]:
    """The variables of grubenv."""
    path = root / FOLDER / "grubenv"
    if path.is_symlink() or not path.is_file():
        return {}
    rows = path.read_text("utf-8", "replace")[:BLOCK].splitlines()
    pairs = (row.partition("=") for row in rows if not row.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


def save(root: Path, values: dict[str, str]) -> None:
    """Write variables to grubenv in its place, as GRUB does; nothing without that file."""
    path = root / FOLDER / "grubenv"
    if path.is_symlink() or not path.is_file():
        return
    rows = "".join(
        f"{name}={value}\n" for name, value in {**grubenv_variables(root), **values}.items()
    )
    with path.open("r+b") as file:
        head = file.readline().decode() + "".join(
            line.decode() for line in file if line.startswith(b"# ")
        )
        file.seek(0)
        file.write((head + rows).encode().ljust(BLOCK, b"#")[:BLOCK])


def booted(root: Path) -> str | None:
    """The command line with which the node of this disk boots now; None without a menu. It uses up
    what `grub-reboot` chose."""
    return GrubMenu(root).boot()
