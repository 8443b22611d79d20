"""The root file system that the nodes of all fleets share, read-only: of this machine it has a few
packages, under a dpkg that knows no others, and nothing else. A machine without dpkg shows all its
own files."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from nodevet_sim.nspawn import links
from nodevet_sim.nspawn.boot import NodeError, last_words
from nodevet_sim.nspawn.disk import put
from nodevet_sim.nspawn.packages import installed, of_a_node
from nodevet_sim.nspawn.tools import version
from nodevet_sim.software_files import DPKG

MACHINE = Path("/")
FOLDERS: Mapping[str, int] = {  # those that no package brings, or for which it matters
    **dict.fromkeys(("/boot", "/dev", "/home", "/media", "/mnt", "/opt", "/proc"), 0o755),
    **dict.fromkeys(("/run", "/srv", "/sys", "/usr/lib/modules", "/var/local"), 0o755),
    **{f"/etc/cron.{name}": 0o755 for name in ("d", "hourly", "daily", "weekly", "monthly")},
    **{f"/usr/local{name}": 0o755 for name in ("", "/bin", "/lib", "/sbin", "/share")},
    **dict.fromkeys(("/tmp", "/var/tmp"), 0o1777),  # noqa: S108  (folders of the node)
    "/root": 0o700,
    "/var/mail": 0o2775,
}
LINKS = {"/etc/mtab": "../proc/self/mounts", "/var/lock": "/run/lock", "/var/run": "/run"}
PAM = {  # what Debian's configuration of su, login and others includes
    "account": "account required pam_unix.so\n",
    "auth": "auth required pam_unix.so nullok\n",
    "password": "password required pam_unix.so yescrypt\n",
    "session": "session required pam_permit.so\n",
    "session-noninteractive": "session required pam_permit.so\n",
}
FILES = {
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    "/etc/shells": "/bin/sh\n/bin/bash\n/usr/bin/bash\n",
    "/etc/sudoers": "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n",
    "/etc/timezone": "Etc/UTC\n",
    **{f"/etc/pam.d/common-{name}": text for name, text in PAM.items()},
}
PROFILE = "/usr/share/base-files/profile"  # /etc/profile, as its package makes it
FIXED = "root daemon bin sys adm tty disk lp mail news uucp man proxy kmem dialout fax voice cdrom"
FIXED += " floppy tape sudo audio dip www-data backup operator list irc src shadow utmp video sasl"
FIXED += " plugdev staff games users sync nogroup nobody"
MADE = "_apt _ssh crontab input kvm messagebus netdev render sgx ssh sshd"
NAMES = frozenset(f"{FIXED} {MADE}".split())
"""Users and groups of Debian and of a node's packages, besides systemd's own."""


def build(cache: Path, machine: Path = MACHINE) -> Path:
    """The root, made now or taken from the cache. Raises NodeError, OSError."""
    try:
        status = (machine / DPKG.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return machine
    packages = of_a_node(installed(status))
    text = "".join(f"{package.paragraph}\n" for package in packages)
    digest = hashlib.sha256(f"{version()}{text}".encode()).hexdigest()
    folder = cache / f"root-{digest[:16]}"
    if not folder.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache) as scratch:
            new = Path(scratch) / "new"
            write(links.PackageFiles(machine, packages), new, text)
            with suppress(OSError):  # another fleet was first
                new.rename(folder)
    return folder


def write(files: links.PackageFiles, into: Path, status: str) -> None:
    """Fill a new root. `status` is what its dpkg says."""
    into.mkdir()
    into.chmod(0o755)
    links.copy(files, into)
    for path, mode in FOLDERS.items():
        place = into / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(mode)
    for path, to in LINKS.items():
        with suppress(FileExistsError):
            (into / path.lstrip("/")).symlink_to(to)
    profile = into / PROFILE.lstrip("/")
    own = {**FILES, **dict(_accounts(files.machine)), DPKG: status}
    if profile.exists():
        own["/etc/profile"] = profile.read_text(encoding="utf-8")
    for path, text in own.items():
        (into / path.lstrip("/")).unlink(missing_ok=True)  # it may be a link
        put(into, path, text)
    _index_libraries(into)


def _accounts(machine: Path) -> Iterator[tuple[str, str]]:
    """Users and groups with the numbers that they have on this machine: its files are theirs."""
    for path, row in (("/etc/passwd", _user), ("/etc/group", _group)):
        text = (machine / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        yield path, "".join(_ours(text, row))


def _ours(text: str, row: Callable[[list[str]], str]) -> Iterator[str]:
    for words in (line.split(":") for line in text.splitlines()):
        if words[0] in NAMES or words[0].startswith("systemd-"):
            yield row(words)


def _user(words: list[str]) -> str:
    """As on a machine that is just installed.

    >>> _user(["sshd", "x", "104", "65534", "", "/run/sshd", "/bin/fish"])
    'sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\\\\n'
    """
    name, _, uid, gid, _, home = words[:6]
    if name == "root":
        return "root:x:0:0:root:/root:/bin/bash\n"
    return f"{name}:x:{uid}:{gid}::{home}:/usr/sbin/nologin\n"


def _group(words: list[str]) -> str:
    """Without members."""
    return f"{words[0]}:x:{words[2]}:\n"


def _index_libraries(root: Path) -> None:
    """/etc/ld.so.cache, over the libraries that are there."""
    words = ("ldconfig", "-X", "-r", str(root))
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, check=False)
    if done.returncode != 0:
        raise NodeError(f"ldconfig exited with {done.returncode}: {last_words(done.stderr)}")
