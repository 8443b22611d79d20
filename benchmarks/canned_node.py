"""What a node's sshd runs instead of a probe: it answers with evidence that was read before.

Usage: canned_node.py EVIDENCE.json, on the standard input of a probe; any other command succeeds.
Each answer has machine, boot and GPU ids of its own.
"""

import hashlib
import json
import os
import re
import sys
import zlib

IDENTITIES = re.compile(rb'(GPU-|"(?:machine_id|boot_id)": ?")[0-9a-f]{8}')


def main(path: str) -> None:
    if "sys.stdin.buffer" not in os.environ.get("SSH_ORIGINAL_COMMAND", ""):
        return
    size = int(sys.stdin.buffer.readline())
    sys.stdin.buffer.read(size)
    wish = json.loads(sys.stdin.buffer.readline())
    own = rb"\g<1>" + os.urandom(4).hex().encode()
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs more than all the rest
        packed = zlib.compress(IDENTITIES.sub(own, file.read()), 1)
    head = f"\x1eNODEVETZ {wish['nonce']} {len(packed)} {hashlib.sha256(packed).hexdigest()}\n"
    sys.stdout.buffer.write(head.encode() + packed)


main(sys.argv[1])
