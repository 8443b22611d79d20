"""The process of a launcher: writes do not wait, and it is asked to end before it is killed."""

import os
import queue
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress

from nodevet.fleet.controller.child import TAIL, ChildProcess, StalledError
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import Beat
from nodevet.fleet.protocol.greeting import BEAT

PATIENCE = 3600  # seconds that one write may take; a process that hangs is ended long before
ENDING = 2.0  # seconds for it to end its own children once it is asked to end


class LauncherProcess(ChildProcess):
    """Keeps the end of its stderr, and writes a sign of life every BEAT seconds.

    The remote program ends when its input does: srun, kubectl and ssh pass the end on.
    """

    ending = ENDING

    def __init__(self, argv: Sequence[str]) -> None:
        """Raises FleetError."""
        self._stderr = b""
        self._messages: queue.Queue[bytes | None] = queue.Queue()
        source, sink = os.pipe()
        try:
            with os.fdopen(sink, "wb") as errors:
                super().__init__(argv, errors=errors)
        except BaseException:
            os.close(source)
            raise
        self._reader = threading.Thread(target=self._read_errors, args=(source,), daemon=True)
        self._writer = threading.Thread(target=self._write_all, daemon=True)
        self._reader.start()
        self._writer.start()

    def put(self, message: bytes) -> None:
        self._messages.put(message)

    def finish(self) -> None:
        """Close its input, which asks it to end."""
        self._messages.put(None)

    def stop(self) -> None:
        self.finish()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)

    def _write_all(self) -> None:
        beat = framing.write_notice(Beat())
        with suppress(OSError, ValueError, StalledError):
            while True:
                try:
                    message = self._messages.get(timeout=BEAT)
                except queue.Empty:
                    message = beat
                if message is None:
                    break
                self.write(message, PATIENCE)
        self.hang_up()

    def _read_errors(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            while chunk := source.read(TAIL):
                self._stderr = (self._stderr + chunk)[-TAIL:]

    def _tail(self) -> bytes:
        self.finish()
        self._writer.join(self.ending)
        self._reader.join(self.ending)
        return self._stderr
