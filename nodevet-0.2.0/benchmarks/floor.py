"""The floor of any SSH sweep: asyncssh connects to every host and runs `true`.

Usage: floor.py HOSTS.json, a list of objects with address, port, key and known_hosts.
"""

import asyncio
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
from contenders import AT_A_TIME


@cache
def known_hosts(path: str) -> asyncssh.SSHKnownHosts:
    """Read once: asyncssh would read it for every connection."""
    return asyncssh.read_known_hosts(path)


async def visit(host: dict[str, Any], gate: asyncio.Semaphore) -> None:
    async with (
        gate,
        asyncssh.connect(
            host["address"],
            host["port"],
            client_keys=[host["key"]],
            known_hosts=known_hosts(host["known_hosts"]),
            agent_path=None,
            config=None,
        ) as connection,
    ):
        await connection.run("true", check=True)


async def main(hosts: list[dict[str, Any]]) -> None:
    gate = asyncio.Semaphore(AT_A_TIME)
    await asyncio.gather(*(visit(host, gate) for host in hosts))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
