"""Nodes that cost next to nothing: an SSH server on loopback that answers for thousands of them.

Usage: canned.py COUNT EVIDENCE.json AUTHORIZED_KEY.pub HOST_KEY [SECONDS]. It prints the port that
all its addresses have. At each address a session that sends a probe gets the evidence of a node of
its own, after that node thought for SECONDS. Any other command succeeds at once. It ends when its
standard input does.
"""

import asyncio
import hashlib
import json
import resource
import socket
import sys
import zlib
from pathlib import Path

import asyncssh
from night import Nodes


class CannedNodes:
    """What the sessions share."""

    def __init__(self, document: bytes, seconds: float) -> None:
        self._nodes = Nodes(document)
        self._seconds = seconds

    async def answer(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        if "sys.stdin.buffer" not in (process.command or ""):
            process.exit(0)
            return
        await process.stdin.readexactly(int(await process.stdin.readline()))  # the program
        wish = json.loads(await process.stdin.readline())
        await asyncio.sleep(self._seconds)
        own = number(process.get_extra_info("sockname")[0])
        packed = zlib.compress(self._nodes.answer(own), 1)
        digest = hashlib.sha256(packed).hexdigest()
        head = f"\x1eNODEVETZ {wish['nonce']} {len(packed)} {digest}\n"
        process.stdout.write(head.encode() + packed)
        await process.stdout.drain()
        process.exit(0)


def address(number: int) -> str:
    """Of one of the nodes."""
    return f"127.9.{number // 250}.{number % 250 + 1}"


def number(address: str) -> int:
    """Of the node that has this address."""
    block, place = map(int, address.split(".")[2:])
    return block * 250 + place - 1


def free_port() -> int:
    """A port that is free at one address, and so most likely at all."""
    with socket.socket() as probe:
        probe.bind((address(0), 0))
        return int(probe.getsockname()[1])


async def main(
    count: int, evidence: Path, authorized: Path, host_key: Path, seconds: float = 0.0
) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    nodes, port = CannedNodes(evidence.read_bytes(), seconds), free_port()
    server = await asyncssh.listen(
        [address(number) for number in range(count)],
        port,
        server_host_keys=[str(host_key)],
        authorized_client_keys=str(authorized),
        process_factory=nodes.answer,
        encoding=None,
        keepalive_interval=0,
    )
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *map(Path, sys.argv[2:5]), *map(float, sys.argv[5:])))
