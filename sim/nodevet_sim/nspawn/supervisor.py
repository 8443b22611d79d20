"""The process that keeps a fleet of simulated nodes alive and answers its requests.

    python -m nodevet_sim.nspawn.supervisor FLEET LOCK

runs in a mount namespace of its own (see `control.up`). Its end, even by SIGKILL, ends the nodes,
their mounts, networks and interfaces; files and control groups that are left then are removed by
`control.down`.

It takes requests on the socket /run/nodevet-sim/<fleet>/control: one JSON line there, one back.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodevet_sim import kernel, library, programs
from nodevet_sim.nspawn import cgroups, diff, disk, place, root
from nodevet_sim.nspawn.boot import NodeError, run
from nodevet_sim.nspawn.change import apply
from nodevet_sim.nspawn.network import NodeNetwork
from nodevet_sim.nspawn.node import RUNS, RunningNode, reason
from nodevet_sim.nspawn.place import FleetFolder
from nodevet_sim.nspawn.tools import BuiltTools, build
from nodevet_sim.scenario import (
    LoadedScenario,
    ScenarioError,
    changed,
    describe,
    hidden_by,
    load,
)
from nodevet_sim.sshd import known_hosts_line, make_key

REQUEST_LIMIT = 1 << 20


class Supervisor:
    def __init__(self, where: FleetFolder, loaded: LoadedScenario) -> None:
        self.where = where
        self.specs = dict(loaded.nodes)
        self.nodes: dict[str, RunningNode] = {}
        self.groups = cgroups.make(cgroups.own_groups(), f"{cgroups.PREFIX}{where.fleet}")
        self.ending = asyncio.Event()
        self._lives: list[asyncio.Task[None]] = []
        # systemd is busy while it boots: as many at once as there are CPUs, and one more
        self._turn = asyncio.Semaphore((os.cpu_count() or 1) + 1)

    async def start(self) -> None:
        """Boot all nodes. Raises NodeError and what the builders of the tools raise."""
        await self._private_mounts()
        tools = await asyncio.to_thread(build, place.CACHE)
        below = await self._shared_layers(tools)
        key = make_key(self.where.key)
        number = int(self.where.number.read_text(encoding="ascii"))
        networks = {
            name: NodeNetwork(number, index, self.where.fleet)
            for index, name in enumerate(self.specs)
        }
        hosts = "".join(f"{net.address} {name}\n" for name, net in networks.items())
        known = []
        for name, spec in self.specs.items():
            folder = self.where.nodes / str(networks[name].node)  # short: it holds a socket
            host_key = await asyncio.to_thread(make_key, folder / "host_key", name)
            known.append(known_hosts_line(networks[name].address, 22, host_key))
            self.nodes[name] = RunningNode(
                node=describe(spec),
                folder=folder,
                network=networks[name],
                identity=disk.NodeIdentity(
                    machine_id=secrets.token_hex(16),
                    host_key=host_key.path,
                    authorized_keys=f"{key.public}\n",
                    hosts=f"127.0.0.1 localhost\n{hosts}",
                ),
                tools=tools,
                below=below,
                groups=cgroups.make(self.groups, f"node-{networks[name].node}"),
            )
        self.where.known_hosts.write_text("".join(known), encoding="utf-8")
        self.where.inventory.write_text(self.inventory(), encoding="utf-8")
        self._lives = [asyncio.create_task(self._live(node)) for node in self.nodes.values()]

    async def _private_mounts(self) -> None:
        """Its own /run, which shares only the folders of the fleets with the machine."""
        nodes, tmpfs = self.where.nodes, ("-t", "tmpfs", "-o", "mode=0755", "nodevet-sim")
        nodes.mkdir()
        await run("mount", *tmpfs, nodes)
        shown = nodes / "run" / place.TOP.name
        shown.mkdir(parents=True)
        await run("mount", "--bind", place.TOP, shown)
        await run("mount", "--rbind", nodes / "run", place.TOP.parent)
        await run("mount", *tmpfs, nodes)

    async def _shared_layers(self, tools: BuiltTools) -> disk.SharedLayers:
        lowest = await asyncio.to_thread(root.build, place.CACHE)
        common, merged = self.where.nodes / "common", self.where.nodes / "below"
        for folder in (common, merged):
            folder.mkdir()
        await asyncio.to_thread(disk.write_common, common, tools.common, lowest)
        extra = [Path(folder) for folder in filter(None, [os.environ.get(place.LAYER)])]
        layers = disk.SharedLayers((common, *extra, lowest), merged)
        await run("mount", "-t", "overlay", "-o", f"ro,{layers.option}", "nodevet-sim", merged)
        return layers

    async def _live(self, node: RunningNode) -> None:
        try:
            await node.prepare()
        except Exception as error:
            await node.fail(reason(error))
            return
        await node.live(self._turn)

    def inventory(self) -> str:
        """The nodes as an inventory for `nodevet check -i`."""
        defaults = {
            "user": "root",
            "key_file": str(self.where.key),
            "known_hosts": str(self.where.known_hosts),
            "whole_machine": True,
        }
        hosts = {name: {"address": node.network.address} for name, node in self.nodes.items()}
        rows = [f"  {json.dumps(name)}: {json.dumps(host)}\n" for name, host in hosts.items()]
        return f"nodevet: 1\ndefaults: {json.dumps(defaults)}\nhosts:\n{''.join(rows)}"

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request. Raises NodeError, ScenarioError."""
        what = request.get("do")
        if what == "list":
            return {"nodes": [status(node) for node in self.nodes.values()]}
        if what == "wait":
            for node in self.nodes.values():
                await node.until(lambda node=node: node.is_settled)  # type: ignore[misc]
            return {"nodes": [status(node) for node in self.nodes.values()]}
        if what == "down":
            self.ending.set()
            return {}
        node = self._node(str(request.get("node")))
        if what == "power":  # whoever switches does not wait: a BMC says yes, and then it happens
            await node.switch(str(request.get("set", "")))
            return {"power": node.has_power}
        async with node.busy:
            if what == "reboot":
                await node.reboot()
                return status(node)
            if what == "disk":
                return {"files": await asyncio.to_thread(node.disk)}
            if what == "diff":
                if node.made is None:
                    raise NodeError(f"{node.node.name} has not booted yet")
                now = await asyncio.to_thread(node.disk)
                return {"changes": diff.changes(node.made, now, node.below.merged)}
            if what == "set":
                spec = self.specs[node.node.name]
                for key, value in request["values"]:
                    spec = changed(spec, key, value)
                set_keys = {key for key, _ in request["values"]}
                if "governor" in set_keys and (why := hidden_by(spec)):
                    raise NodeError(why)
                await apply(node, describe(spec))
                self.specs[node.node.name] = spec
                return status(node)
        raise NodeError(f"the supervisor does not know the request {what!r}")

    def _node(self, name: str) -> RunningNode:
        if name not in self.nodes:
            raise NodeError(f"the fleet has no node {name!r}; nodes: {', '.join(self.nodes)}")
        return self.nodes[name]

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                reply = await self.answer(json.loads(await reader.readline()))
            except ScenarioError as error:
                reply = {"error": str(error)}
            except Exception as error:  # the fleet must live on, and the asker must know
                reply = {"error": reason(error)}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def stop(self) -> None:
        """End all nodes and remove everything. Mounts end with this process."""
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        await asyncio.to_thread(cgroups.end, self.groups)


def status(node: RunningNode) -> dict[str, Any]:
    return {
        "name": node.node.name,
        "address": node.network.address,
        "state": node.state,
        "why": node.why,
        "boots": node.boots,
        "uptime_s": round(node.uptime_s, 1) if node.state == RUNS else None,
    }


async def serve(where: FleetFolder) -> None:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(where, load(Path(os.fsdecode(where.scenario.read_bytes()))))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.ending.set)
    try:
        await supervisor.start()
        early = where.control.with_name("control.new")  # whoever sees its name may connect
        server = await asyncio.start_unix_server(supervisor.converse, early, limit=REQUEST_LIMIT)
        early.chmod(0o600)
        early.rename(where.control)
        await supervisor.ending.wait()
        server.close()  # who still waits for an answer is told by the end
    finally:
        await supervisor.stop()


def main() -> int:
    where, held = FleetFolder(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(held, False)  # the lock is this process's alone
    os.umask(0o022)  # what it writes is a node's
    try:
        asyncio.run(serve(where))
    except (
        NodeError, ScenarioError, OSError, library.LibraryError, kernel.KernelError,
        programs.ProgramError,
    ) as error:  # fmt: skip
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception as error:
        sys.stderr.write(f"{reason(error)}\n")
        return 1
    finally:
        os.close(held)
    return 0


if __name__ == "__main__":
    sys.exit(main())
