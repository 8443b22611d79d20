"""What a node's sshd runs instead of a probe: it sends an answer that was made before.

Usage: canned_node.py FOLDER [SECONDS], on the standard input of a probe; any other command
succeeds. FOLDER holds what each node answers, compressed, in a file named after its address.
SECONDS: how long a node thinks before it answers.
"""

import hashlib
import json
import os
import sys
import time


def main(folder: str, seconds: float) -> None:
    if "sys.stdin.buffer" not in os.environ.get("SSH_ORIGINAL_COMMAND", ""):
        return
    size = int(sys.stdin.buffer.readline())
    sys.stdin.buffer.read(size)
    wish = json.loads(sys.stdin.buffer.readline())
    time.sleep(seconds)
    address = os.environ["SSH_CONNECTION"].split()[2]
    with open(f"{folder}/{address}", "rb") as file:  # noqa: PTH123 - pathlib costs more than all the rest
        packed = file.read()
    head = f"\x1eNODEVETZ {wish['nonce']} {len(packed)} {hashlib.sha256(packed).hexdigest()}\n"
    sys.stdout.buffer.write(head.encode() + packed)


main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
