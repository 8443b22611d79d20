"""Rank 1 never enters a collective, though its GPU polls like the others'; all wrote dumps."""

import os
import pickle
import threading
import time
from pathlib import Path

from tests.corpus.job import POLLING, RANKS, JobKind
from tests.corpus.jobs import hangs

JOB = JobKind(
    late=frozenset({1}),
    cause="has not entered a collective",
    action="see where it is instead",
    gpus=dict.fromkeys(range(4), POLLING),
    writes_dumps=True,
    settles_s=15.0,
)
AFTER_S = 12.0  # the timeout of the collective


def entry(sequence, state):
    return {
        "record_id": sequence - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[1024, 8]],
        "time_created_ns": time.time_ns(),
        "time_discovered_started_ns": None,
        "state": state,
        "retired": state == "completed",
    }


def prepare(rank, path, gpu):
    entries = [entry(1, "completed")]
    if rank != 1:
        entries.append(entry(2, "scheduled"))
    members = {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}
    dump = {"version": "2.10", "pg_config": {"0": members}, "entries": entries}
    place = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank))
    threading.Timer(AFTER_S, lambda: place.write_bytes(pickle.dumps(dump, 2))).start()
    return hangs.prepare(rank, path, gpu)
