"""A node with described GPUs: runs the real probe over the simulated NVML library."""

import json
import os
import subprocess
import sys

import pytest

from nodevet.evidence.document import decode
from nodevet.evidence.gpu import Gpus
from nodevet_sim.library import environment

PROBE = """
import json, sys
from nodevet.remote.probe.main import probe
from nodevet.remote.request import checked_request
print(json.dumps(probe(checked_request({"do": "probe", **json.load(sys.stdin)}))))
"""


def read_gpus(variables):
    """What the probe reads of the GPUs under these environment variables."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps({"deadline": 60, "sections": ["gpu"], "asks": {"gpu": ["nvlink_ber"]}}),
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=90,
    )
    section = decode(done.stdout)[Gpus]
    assert section.status == "ok", section
    return section.data


@pytest.fixture
def gpus_of(nvml, tmp_path):
    """Reads the GPUs that a state describes."""

    def read(text):
        path = tmp_path / "node.state"
        path.write_text(text)
        return read_gpus(environment(nvml, path))

    return read


@pytest.fixture
def gpus_of_this_machine():
    return lambda: read_gpus({})
