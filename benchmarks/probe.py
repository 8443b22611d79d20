"""Measures the probe on a simulated node, with eight GPUs or none, beside an empty Python."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from contenders import HERE, BenchmarkError
from saved_nodes import nodevet

from nodevet.fleet.protocol.payload import payload, request

PROFILES = ("h100-sxm", "none")
ON_NODE = "on_the_node.py"


@dataclass(frozen=True)
class ProbeCost:
    """Milliseconds of CPU, the least of all rounds."""

    gpus: int
    empty: float
    probe: float


def measure(folder: Path, rounds: int, profile: str) -> ProbeCost:
    """Boots a node with GPUs of this profile, and asks it. Raises BenchmarkError."""
    scenario, fleet = folder / "one.yaml", f"probe{os.getpid()}"
    node = f"bench{os.getpid()}"
    scenario.write_text(
        yaml.safe_dump({"sim": 1, "title": "one", "nodes": {node: {"gpus": profile}}})
    )
    wish = request(nonce="0" * 16, root="/", whole_machine=True, deadline=60, asked_s=None)
    try:
        nodevet("sim", "up", str(scenario), "--name", fleet)
        put(node, f"/tmp/{ON_NODE}", (HERE / ON_NODE).read_bytes())
        put(node, "/tmp/payload", payload() + wish)
        said = ask(node, f"python3 -I /tmp/{ON_NODE} {rounds} /tmp/payload")
        return ProbeCost(**json.loads(said))
    finally:
        nodevet("sim", "down", fleet)


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
            print(measure(Path(temporary), int(sys.argv[1]), name))
