"""A network namespace of a test, whose only network can be taken down and up again."""

import ctypes
import socket
import subprocess
import threading
from pathlib import Path

from far_processes import wait_for

CLONE_NEWNET = 0x40000000


class NoNamespaceError(Exception):
    """Why this machine gives none."""


class NetworkApart:
    """It ends with the process that holds it. A program joins it by the words of `enter`."""

    def __init__(self) -> None:
        """Raises NoNamespaceError."""
        ours = Path("/proc/self/ns/net").readlink()
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sleep", "1000"], stderr=subprocess.PIPE, start_new_session=True
        )
        place = Path(f"/proc/{self._holder.pid}/ns/net")

        def settled() -> bool:
            return self._holder.poll() is not None or place.readlink() != ours

        wait_for(settled)
        if self._holder.poll() is not None:
            raise NoNamespaceError((self._holder.communicate()[1]).decode().strip())
        self._place = place
        self.enter = ("nsenter", "-t", str(self._holder.pid), "-n")
        self.up()

    def up(self) -> None:
        subprocess.run([*self.enter, "ip", "link", "set", "lo", "up"], check=True)

    def down(self) -> None:
        """From now on no packet arrives, and nobody is told."""
        subprocess.run([*self.enter, "ip", "link", "set", "lo", "down"], check=True)

    def listening(self) -> socket.socket:
        """A socket that listens in there."""
        found: list[socket.socket] = []

        def make() -> None:  # a thread of its own, which alone changes over
            with self._place.open() as place:
                if ctypes.CDLL(None).setns(place.fileno(), CLONE_NEWNET) == 0:
                    found.append(socket.create_server(("127.0.0.1", 0)))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return found[0]

    def end(self) -> None:
        self._holder.kill()
        self._holder.communicate()
