"""How often in a row this machine was unknown, for health checks that drain nodes.

A failure counts at once. An unknown counts only after several looks in a row. A condition that
passes by itself (the package manager is at work, the machine has just booted) never counts.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.base.files import open_regular, state_folder, write_whole
from nodevet.base.trust import distrust
from nodevet.evidence.transient import is_booting
from nodevet.model import Host
from nodevet.model.run import Run

AGAIN = 75  # exit code: look again; sysexits.h's EX_TEMPFAIL
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN = 3  # exit code of a run in which something could not be judged, and nothing fails
LONGEST = 200  # bytes of a record


class Looks:
    """The looks of one command line at this machine in this boot."""

    def __init__(self, arguments: Sequence[str], hosts: Sequence[Host], most: int) -> None:
        """`most`: looks in a row. Raises UserError for other hosts than this machine, and if other
        users may write the record."""
        if [host.local and host.root == "/" for host in hosts] != [True]:
            raise UserError("--looks needs @local as the only host: it counts looks at one machine")
        self._most = most
        key = hashlib.sha256("\0".join((str(Path.cwd()), *arguments)).encode("utf-8", "replace"))
        self._path = state_folder() / "looks" / key.hexdigest()[:32]
        self._check_owner()
        try:
            self._boot = BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise UserError(f"--looks: cannot count looks: {error}") from error
        with suppress(OSError):  # a failure counts on a full disk, too
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._check_owner()  # others may have made the folder meanwhile

    def _check_owner(self) -> None:
        if why := distrust(self._path):
            raise UserError(f"--looks: {why}, so nodevet does not count looks there")

    def code(self, run: Run, code: int) -> tuple[int, str]:
        """The exit code of this look, and why it is not `code`."""
        (report,) = run.hosts
        booting = is_booting(report.facts.uptime_s if report.facts else None)
        if code == 0 or (not booting and run.exit_code != UNKNOWN):
            with suppress(OSError):  # such as on a disk that an error made read-only
                self._path.unlink(missing_ok=True)
            return code, ""
        if booting:
            return AGAIN, "the machine has just booted: look again"
        if report.is_transient:
            return AGAIN, "the unknown findings pass by themselves: look again"
        try:
            number = self._earlier_unknowns() + 1
            write_whole(self._path, f"{self._boot} {number}".encode(), durable=False, mode=0o600)
        except OSError as error:
            text = f"{self._path}: {error.strerror}"
            return AGAIN, f"unknown, and looks cannot be counted: {text}; look again"
        if number >= self._most:
            return code, ""
        return AGAIN, f"unknown in {number} of {self._most} looks: look again"

    def _earlier_unknowns(self) -> int:
        """The number of unknown looks in a row before this one, in this boot."""
        with suppress(FileNotFoundError, UnicodeDecodeError), open_regular(self._path) as file:
            boot, _, number = file.read(LONGEST).decode("ascii").partition(" ")
            return int(number) if boot == self._boot and number.isdecimal() else 0
        return 0
