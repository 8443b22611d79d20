"""The folders of running fleets, and who holds each."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nodevet_sim.nspawn.network import MOST_FLEETS

TOP = Path("/run/nodevet-sim")
CACHE = Path("/var/cache/nodevet/sim")  # what was compiled; of root alone: it is run
QUICK_KEX = "curve25519-sha256"
"""A key exchange of ssh in 10 ms of CPU time. Its usual one, sntrup761x25519, takes 60 ms, and no
network carries these bytes."""
LAYER = "NODEVET_SIM_LAYER"
"""The variable with a folder of `sim up` whose files the nodes have in place of this machine's."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class FleetFolderError(Exception):
    """A fleet's folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class FleetFolder:
    """The folder of one fleet, /run/nodevet-sim/<fleet>."""

    fleet: str

    @property
    def folder(self) -> Path:
        return TOP / self.fleet

    @property
    def scenario(self) -> Path:
        """The path of the scenario, as text."""
        return self.folder / "scenario"

    @property
    def number(self) -> Path:
        """The fleet's number, which its addresses hold."""
        return self.folder / "number"

    @property
    def pid(self) -> Path:
        """The process id of the supervisor; true as long as the fleet lives."""
        return self.folder / "pid"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yaml"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def nodes(self) -> Path:
        """A tmpfs in the supervisor's own mount namespace; empty for everybody else."""
        return self.folder / "nodes"

    def lives(self) -> bool:
        """Whether a supervisor holds the folder, or `up` for one that it is about to start."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def fleets() -> tuple[str, ...]:
    """Every fleet that is up, and what is left of those that died."""
    if not TOP.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in TOP.iterdir() if entry.is_dir()))


def claim(fleet: str) -> tuple[FleetFolder, int]:
    """A new folder for a fleet, with its own number, and the lock on it: the process with the open
    descriptor holds the folder. Raises FleetFolderError.
    """
    if not NAME.fullmatch(fleet):
        raise FleetFolderError(
            f"{fleet[:60]!r} is not a valid fleet name; give one with --name, at most 40 "
            "letters, digits, '.', '-' and '_'"
        )
    place = FleetFolder(fleet)
    with lock_folders():
        if place.folder.exists():
            raise FleetFolderError(
                f"a fleet named {fleet} is already up; give another name with --name, or if it is "
                f"yours, end it with: nodevet sim down {fleet}"
                if place.lives()
                else f"a fleet named {fleet} died here; remove it with: nodevet sim down {fleet}"
            )
        taken = set()
        for other in fleets():
            with suppress(OSError, ValueError):  # its folder is just removed, or was never whole
                taken.add(int(FleetFolder(other).number.read_text(encoding="ascii")))
        free = next((number for number in range(MOST_FLEETS) if number not in taken), None)
        if free is None:
            raise FleetFolderError(
                f"{MOST_FLEETS} fleets are up; end one of yours with: nodevet sim down NAME"
            )
        try:
            place.folder.mkdir(mode=0o755)
            place.number.write_text(str(free), encoding="ascii")
            lock = os.open(place.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            shutil.rmtree(place.folder, ignore_errors=True)
            raise FleetFolderError(f"{place.folder} cannot be created: {error.strerror}") from error
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return place, lock


def remove(place: FleetFolder) -> None:
    """Remove the folder of a fleet that is dead, and what fleets share after the last one."""
    with lock_folders():
        if place.folder.exists() and not place.lives():
            shutil.rmtree(place.folder)
        _clear()


def _clear() -> None:
    """Remove what fleets share, unless a fleet exists; keep compiled programs while `kept` is
    active.
    """
    if fleets():
        return
    with suppress(OSError):  # others may keep something there
        if not is_kept():
            shutil.rmtree(CACHE)
            CACHE.parent.rmdir()
    with suppress(OSError):
        TOP.rmdir()


@contextmanager
def keep_cache() -> Iterator[None]:
    """Keep compiled programs meanwhile, even if the last fleet ends."""
    with lock_folders():
        CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(CACHE, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        yield
    finally:
        with lock_folders():
            os.close(descriptor)
            _clear()


def is_kept() -> bool:
    """Whether anybody wants to keep the compiled programs."""
    try:
        descriptor = os.open(CACHE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def lock_folders() -> Iterator[None]:
    """One process at a time makes or removes folders. The top folder is made if missing."""
    while True:
        TOP.mkdir(mode=0o755, exist_ok=True)
        try:
            descriptor = os.open(TOP, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # the last fleet ended in between
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), TOP.stat()):
                break
        os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)
