"""Measures the probe on a simulated node, with eight GPUs or none, beside an empty Python."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from contenders import HERE, BenchmarkError
from saved_nodes import nodevet

from nodevet.fleet import Options
from nodevet.fleet.protocol import payload
from nodevet.fleet.protocol.exchange import request
from nodevet.vet.use.asks import asks
from nodevet.vet.use.context import open_context
from nodevet.vet.use.reach import judged_alone

PROFILES = {"h100-sxm": "nvidia-h100-sxm", "none": "generic"}
"""The GPUs of a node, and a baseline that it is judged by."""
ON_NODE = "on_the_node.py"
REQUEST: dict[str, Any] = {
    "nonce": "0" * 16,
    "root": "/",
    "whole_machine": True,
    "deadline": 60,
    "asked_s": None,
}


@dataclass(frozen=True)
class ProbeCost:
    """Milliseconds of CPU, the least of all rounds. `asked`: what the node was asked for."""

    gpus: int
    empty: float
    probe: float
    asked: str


def measure(folder: Path, rounds: int, profile: str) -> list[ProbeCost]:
    """Boots a node with GPUs of this profile, and asks it. Raises BenchmarkError."""
    scenario, fleet = folder / "one.yaml", f"probe{os.getpid()}"
    node = f"bench{os.getpid()}"
    scenario.write_text(
        yaml.safe_dump({"sim": 1, "title": "one", "nodes": {node: {"gpus": profile}}})
    )
    try:
        nodevet("sim", "up", str(scenario), "--name", fleet)
        put(node, f"/tmp/{ON_NODE}", (HERE / ON_NODE).read_bytes())
        found = []
        for asked, wish in wishes(folder, PROFILES[profile]).items():
            put(node, "/tmp/payload", wish)
            said = ask(node, f"python3 -I /tmp/{ON_NODE} {rounds} /tmp/payload")
            found.append(ProbeCost(**json.loads(said), asked=asked))
        return found
    finally:
        nodevet("sim", "down", fleet)


def wishes(folder: Path, baseline: str) -> dict[str, bytes]:
    """Programs and requests of a run without a baseline, with this one, and with it if nothing is
    recorded; the last one also for a node with another version of Python."""
    context = open_context(folder, [baseline])
    judged = judged_alone(Options(), context).sections
    rest: dict[str, Any] = {"asks": asks(context), "sections": judged}
    wished: dict[str, dict[str, Any]] = {
        "no baseline": {},
        f"{baseline}, recorded": {"asks": asks(context)},
        f"{baseline}, not recorded": rest,
    }
    messages = {asked: message(rest) for asked, rest in wished.items()}
    with patch.object(payload, "MAGIC_NUMBER", b"another"):
        payload._probe_payload.cache_clear()
        messages[f"{baseline}, not recorded, another Python"] = message(rest)
    payload._probe_payload.cache_clear()
    return messages


def message(rest: dict[str, Any]) -> bytes:
    """A request with these fields, and its program."""
    program = payload.probe_payload(rest.get("sections", ()), [rest.get("asks", {})])
    return program + request(**REQUEST, **rest)


def put(node: str, path: str, data: bytes) -> None:
    """Write a file of the node."""
    ask(node, f"base64 -d > {path}", base64.b64encode(data))


def ask(node: str, command: str, stdin: bytes = b"") -> str:
    """What a command on the node prints. Raises BenchmarkError."""
    words = [sys.executable, "-m", "nodevet", "sim", "ssh", node, command]
    done = subprocess.run(words, input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{command}: {done.stderr.decode(errors='replace')[-1000:]}")
    return done.stdout.decode()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        for name in PROFILES:
            print(*measure(Path(temporary), int(sys.argv[1]), name), sep="\n")
