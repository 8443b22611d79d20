"""A port that passes connections on to an sshd."""

import socket
import threading
from contextlib import suppress

from nodevet_sim.sshd import Sshd


class PassingPort:
    """Greets and hangs up `refused` times before. `listening`: its socket, if there is one."""

    def __init__(
        self, server: Sshd, refused: int = 0, listening: socket.socket | None = None
    ) -> None:
        self.taken = 0
        self._refused = refused
        self._server = server
        self._sock = listening or socket.create_server(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._sock.accept()
            except OSError:
                return
            self.taken += 1
            if self.taken <= self._refused:
                peer.sendall(b"SSH-2.0-Moody\r\n")
                peer.close()
                continue
            node = socket.create_connection((self._server.address, self._server.port))
            threading.Thread(target=_join, args=(peer, node), daemon=True).start()


def _join(peer: socket.socket, node: socket.socket) -> None:
    """Pass on what each says, until both have ended."""
    with peer, node:
        back = threading.Thread(target=_pump, args=(node, peer), daemon=True)
        back.start()
        _pump(peer, node)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
