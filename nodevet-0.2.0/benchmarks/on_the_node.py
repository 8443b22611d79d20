"""Measures the probe on a node beside a Python that does nothing.

Usage, on the node: on_the_node.py ROUNDS PAYLOAD; it prints the CPU milliseconds of both, the least
of all rounds. `probe.py` boots a simulated node for it.
"""

import json
import resource
import subprocess
import sys
import time

BOOT = (
    "import sys,zlib;b=sys.stdin.buffer;z=zlib.decompressobj();"
    "exec(z.decompress(b.read(int(b.readline()))))"
)


def cost(words, stdin):
    """CPU milliseconds of a process and all below it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, input=stdin, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent * 1000, done.stdout


def main(rounds, payload):
    python = [sys.executable, "-I", "-c"]
    found = {"empty": [], "probe": []}
    said = b""
    for _ in range(rounds + 1):
        found["empty"].append(cost([*python, "pass"], b"")[0])
        spent, said = cost([sys.executable, "-I", "-S", "-c", BOOT], payload)
        found["probe"].append(spent)
        time.sleep(0.05)
    answer = json.loads(said[said.index(b"\n", said.index(b"NODEVET")) :])
    gpus = len(answer["sections"]["gpu"].get("data", {}).get("gpus", ()))
    least = {name: min(costs[1:]) for name, costs in found.items()}
    print(json.dumps({"gpus": gpus, **least}))


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as program:  # noqa: PTH123
        main(int(sys.argv[1]), program.read())
