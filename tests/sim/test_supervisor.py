"""How the process that keeps a fleet alive can be reached."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nodevet_sim.nspawn import place, supervisor


class WaitingFleet:
    """A supervisor without nodes: it asks itself, and ends."""

    def __init__(self, where: place.FleetFolder) -> None:
        self.where = where
        self.ending = self
        self.mode = 0

    async def start(self) -> None:
        """There are no nodes."""

    async def stop(self) -> None:
        """There are none."""

    def set(self) -> None:
        """It ends by itself."""

    async def converse(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async def wait(self) -> None:
        self.mode = self.where.control.stat().st_mode & 0o777
        reader, writer = await asyncio.open_unix_connection(self.where.control)
        await reader.read()  # to the end
        writer.close()
        await writer.wait_closed()


def test_the_control_socket_appears_only_once_the_server_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "TOP", tmp_path)
    where = place.FleetFolder("one")
    where.folder.mkdir()
    scenario = tmp_path / "one.yaml"
    scenario.write_text("sim: 1\nnodes: {n1: {gpus: none}}\n")
    where.scenario.write_text(str(scenario))
    fleet, begin = WaitingFleet(where), asyncio.start_unix_server
    seen = []

    async def beginning(*words: Any, **options: Any) -> asyncio.Server:
        server = await begin(*words, **options)
        seen.append(where.control.exists())
        return server

    monkeypatch.setattr(supervisor, "Supervisor", lambda *_: fleet)
    monkeypatch.setattr(asyncio, "start_unix_server", beginning)
    asyncio.run(supervisor.serve(where))
    assert seen == [False] and fleet.mode == 0o600
