"""Where the running fleets are: one folder each, and who holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodevet.sim.nspawn.network import MOST_FLEETS

TOP = Path("/run/nodevet-sim")


class PlaceError(Exception):
    """A fleet's folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Place:
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
        """Whether a supervisor holds the folder."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def claim(fleet: str) -> Place:
    """A new folder for a fleet, with a number of its own. Raises PlaceError."""
    place = Place(fleet)
    with _alone():
        if place.folder.exists():
            raise PlaceError(
                f"a fleet named {fleet} is up already; end it with: nodevet sim down {fleet}"
                if place.lives()
                else f"a fleet named {fleet} died here; remove it with: nodevet sim down {fleet}"
            )
        taken = set()
        for other in fleets():
            taken.add(int(Place(other).number.read_text(encoding="ascii")))
        free = next((number for number in range(MOST_FLEETS) if number not in taken), None)
        if free is None:
            raise PlaceError(f"{MOST_FLEETS} fleets are up; end one with: nodevet sim down NAME")
        place.folder.mkdir(mode=0o755)
        place.number.write_text(str(free), encoding="ascii")
    return place


def hold(place: Place) -> int:
    """Take the folder for this process until it ends; returns the descriptor to keep open.

    Raises BlockingIOError where another one holds it.
    """
    descriptor = os.open(place.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


@contextmanager
def _alone() -> Iterator[None]:
    """One `claim` at a time. The top folder is made where it is missing."""
    TOP.mkdir(mode=0o755, exist_ok=True)
    descriptor = os.open(TOP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
