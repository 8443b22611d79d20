"""Made-up nodes that were watched for ten seconds: what each of them waits for is known."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Diagnosis, GpuDiagnosis, HostDiagnosis
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Status

LOOKS = 11
SECONDS = 10.0
JSON = dict[str, Any]
LOOK = {"began_s": 1.7e9, "seconds": SECONDS, "cost_s": 0.02}
TIMES = [float(second) for second in range(LOOKS)]


def evidence(sections: Mapping[str, JSON]) -> Evidence:
    """These sections, each read well."""
    found = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    return decode(json.dumps({"schema": 1, "probe": "", "sections": found}))


def gpu(busy: int = 20, **rest: Any) -> JSON:
    """A GPU of 80 GiB that one process uses."""
    return {
        "index": 0,
        "name": "H100",
        "bus_id": "0000:19:00.0",
        "power_limit_mw": 700000,
        "max_clock_sm_mhz": 1980,
        "memory_total_b": 80 << 30,
        "pcie_generation": 5,
        "pcie_width": 16,
        "utilization_percent": [busy] * LOOKS,
        "memory_utilization_percent": [busy // 2] * LOOKS,
        "clock_sm_mhz": [1900] * LOOKS,
        "power_mw": [300000] * LOOKS,
        "temperature_c": [50] * LOOKS,
        "event_reasons": [0] * LOOKS,
        "memory_used_b": [60 << 30] * LOOKS,
        "pcie_rx_kb_s": [100000] * LOOKS,
        "pcie_tx_kb_s": [100000] * LOOKS,
        "samples": [[second / 6, busy] for second in range(60)],
        "processes": [{"pid": 10, "sm_percent": float(busy), "memory_used_b": 60 << 30}],
        "gpm_supported": False,
        **rest,
    }


def thread(tid: int, percent: float = 0, system: float = 0, state: str = "S", **rest: Any) -> JSON:
    """A thread that used so many percent of a core, of which `system` are the kernel's."""
    ticks = int(percent * SECONDS)
    own = int(system * SECONDS)
    return {
        "tid": tid,
        "name": "python",
        "states": state * LOOKS,
        "user": [0, ticks - own],
        "system": [0, own],
        "cpu": 0,
        "waited_ns": [0, 0],
        "switches": [0, 100],
        "preemptions": [0, 0],
        "waits": {},
        **rest,
    }


def process(pid: int = 10, threads: list[JSON] | None = None, **rest: Any) -> JSON:
    """A process with these threads."""
    listed = threads or [thread(pid)]
    return {
        "pid": pid,
        "parent": 1,
        "command": "python",
        "gpus": [0] if pid == 10 else [],
        "started_s": 100.0,
        "cpus_allowed": "0-15",
        "threads_total": len(listed),
        "threads": listed,
        "user": [0, sum(each["user"][1] for each in listed)],
        "system": [0, sum(each["system"][1] for each in listed)],
        "children_user": [0, 0],
        "children_system": [0, 0],
        "major_faults": [0, 0],
        "read_calls": [0, 1000],
        "read_b": [0, 4096000],
        "storage_read_b": [0, 4096000],
        "storage_written_b": [0, 0],
        "resident_kb": 1 << 20,
        "pages": {"0": 1 << 18},
        "cgroup": "/job",
        **rest,
    }


def cgroup(**rest: Any) -> JSON:
    """A cgroup of version 2 without limits."""
    return {
        "path": "/job",
        "version": 2,
        "cpus": "0-15",
        "periods": [0, 0],
        "throttled": [0, 0],
        "throttled_us": [0, 0],
        "memory_used_b": 1 << 30,
        "memory_events_max": [0, 0],
        "cpu_some_us": [0, 0],
        "io_full_us": [0, 0],
        "memory_full_us": [0, 0],
        **rest,
    }


def sections(
    gpus: list[JSON] | None = None,
    processes: list[JSON] | None = None,
    groups: list[JSON] | None = None,
    swapped: int = 0,
    application: int = 1980,
) -> dict[str, JSON]:
    """A node of two sockets, and what was watched there."""
    flat = [0] * LOOKS
    rising = list(range(0, 100 * LOOKS, 100))
    return {
        "gpu_activity": {"look": LOOK, "times_s": TIMES, "gpus": gpus or [gpu()]},
        "process_activity": {
            "look": LOOK,
            "times_s": TIMES,
            "tick_hz": 100,
            "uptime_s": 1000.0,
            "complete": True,
            "processes": [process()] if processes is None else processes,
            "cgroups": groups or [cgroup()],
        },
        "host_activity": {
            "look": LOOK,
            "times_s": TIMES,
            "tick_hz": 100,
            "total": {
                **dict.fromkeys(("system", "iowait", "irq", "steal"), flat),
                "user": rising,
                "idle": rising,
            },
            "cpus": [],
            "pressure": {"io_full_us": flat, "memory_full_us": flat},
            "memory": {
                "swapped_in_pages": [swapped * second for second in range(LOOKS)],
                "major_faults": flat,
            },
            "disks": [],
            "nfs": [],
        },
        "cpu": {"online": "0-31"},
        "gpu": {
            "gpus": [
                {
                    "index": each["index"],
                    "power_limit_default_mw": 700000,
                    "app_clock_graphics_mhz": application,
                }
                for each in gpus or [gpu()]
            ]
        },
        "numa": {"nodes": [{"id": 0, "cpulist": "0-15"}, {"id": 1, "cpulist": "16-31"}]},
        "pci": {"functions": [{"address": "0000:19:00.0", "numa_node": 0}]},
    }


def generations(waited_for: bool = True) -> list[JSON]:
    """Eight loaders that had run for ten minutes end after five seconds, which their parent counts
    if it waits for them, and eight others work from then on."""
    before, each = 60_000, 450
    ended = [
        process(
            20 + n,
            [thread(20 + n, 45, ended_s=5.2)],
            parent=10,
            seen_s=5.0,
            ended_s=5.2,
            user=[before, before + each],
        )
        for n in range(8)
    ]
    born = [
        process(40 + n, [thread(40 + n, 45, born_s=5.2)], parent=10, born_s=5.2) for n in range(8)
    ]
    waited = 8 * (before + each) if waited_for else 0
    return [process(children_user=[700, 700 + waited]), *ended, *born]


HOT = [thread(10, 95, 40)]
WORKERS = [process(20 + n, [thread(20 + n, 90)], parent=10) for n in range(8)]
SERVES = thread(
    10,
    switches=[7, 7],
    waits={"do_epoll_wait": LOOKS},
    sleeps=[{"call": "epoll_wait", "looks": LOOKS, "listens": True, "connections": 0}],
)
TCP = {
    "receive_queue_b": 0,
    "send_queue_b": 0,
    "round_trip_us": 40000,
    "silent_ms": 20,
    "resends_now": 0,
    "resent": 3,
    "sent": 20000,
    "out_of_order": 0,
    "received": 40000,
}
DOWNLOADS = thread(
    10,
    5,
    switches=[7, 700],
    waits={"wait_woken": LOOKS},
    sleeps=[
        {
            "call": "recvfrom",
            "looks": LOOKS,
            "listens": False,
            "connections": 1,
            "peer": "10.0.0.5:443",
            "tcp": TCP,
        }
    ],
)
LOCKED = thread(10, switches=[7, 7], waits={"futex_do_wait": LOOKS})
BLOCKED = [
    thread(10, 5, state="D", waits={"folio_wait_bit_common": LOOKS}, io_delay_ticks=[7, 907])
]
CASES: dict[str, dict[str, JSON]] = {
    "GPU-bound": sections([gpu(97)]),
    "busy or spinning": sections(
        [gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[1] * LOOKS)]
    ),
    "lost": sections(
        [
            {
                "index": 0,
                "errors": dict.fromkeys(
                    ("samples", "utilization_percent", "processes"), "NVML_ERROR_GPU_IS_LOST"
                ),
            }
        ]
    ),
    "throttled": sections([gpu(97, event_reasons=[0x40] * LOOKS, clock_sm_mhz=[900] * LOOKS)]),
    "submission-bound": sections(processes=[process(threads=HOT)]),
    "preprocessing-bound": sections(processes=[process(), *WORKERS]),
    "storage-bound": sections(processes=[process(threads=BLOCKED)]),
    "transfer-bound": sections([gpu(40, pcie_rx_kb_s=[55000000] * LOOKS)]),
    "memory-pressure": sections(
        processes=[process(threads=BLOCKED, major_faults=[0, 5000])], swapped=2000
    ),
    "NUMA-remote": sections(processes=[process(threads=[thread(10, 40, cpu=20)])]),
    "stuck": sections([gpu(0)], [process(threads=[LOCKED])]),
    "idle": sections([gpu(0, processes=[], memory_used_b=[0] * LOOKS)], []),
    "not enough evidence": sections([gpu(40)]),
    "network-bound": sections(processes=[process(threads=[DOWNLOADS])]),
    "waiting for requests": sections([gpu(0)], [process(threads=[SERVES])]),
    "CPUs taken by others": sections(
        processes=[process(threads=[thread(10, 20, waited_ns=[0, 7 * 10**9])])]
    ),
    "CPU quota used up": sections(
        processes=[process(threads=[thread(10, 20, waited_ns=[0, 7 * 10**9])])],
        groups=[
            cgroup(cpu_quota=0.2, periods=[0, 100], throttled=[0, 95], throttled_us=[0, 7_000_000])
        ],
    ),
}
"""A node for each cause."""
CAPPED: JSON = {"event_reasons": [0x4] * LOOKS, "clock_sm_mhz": [900] * LOOKS}
OTHERS: dict[str, dict[str, JSON]] = {
    "at a power limit that it does not reach": sections([gpu(97, **CAPPED)]),
    "at its power limit": sections([gpu(97, **CAPPED, power_mw=[690000] * LOOKS)]),
    "at a power limit that was lowered": sections(
        [
            gpu(
                97,
                event_reasons=[0x4] * LOOKS,
                clock_sm_mhz=[900] * LOOKS,
                power_limit_mw=500000,
            )
        ]
    ),
    "clocks that are set low": sections([gpu(90, clock_sm_mhz=[900] * LOOKS)]),
    "one hot helper": sections(processes=[process(), process(20, [thread(20, 95)], parent=10)]),
    "helpers that end": sections(processes=[process(children_user=[0, 900])]),
    "loaders that end, and others in their place": sections(processes=generations()),
    "thousands of round trips": sections(
        processes=[process(threads=[thread(10, 45, 30, switches=[0, 300_000])])]
    ),
}
OTHERS |= {
    "a server with another first thread": sections(
        [gpu(0)], [process(threads=[LOCKED, {**SERVES, "tid": 11}])]
    ),
    "a thread that polls": sections(
        [gpu(0)], [process(threads=[thread(10, 99, state="R", switches=[0, 2])], read_b=[0, 0])]
    ),
    "hot in user time": sections(processes=[process(threads=[thread(10, 98)])]),
    "hot while it copies": sections(
        [gpu(16, pcie_rx_kb_s=[6_000_000] * LOOKS)], [process(threads=[thread(10, 98)])]
    ),
    "threads in turns": sections(
        processes=[
            process(
                threads=[
                    thread(10),
                    *(thread(11 + n, 24, 1, switches=[0, 4000]) for n in range(4)),
                ]
            )
        ]
    ),
    "far with its memory": sections(
        processes=[process(threads=[thread(10, 40, 20, cpu=20)], pages={"1": 1 << 18})]
    ),
    "a file": sections(
        processes=[
            process(
                threads=[
                    thread(
                        10,
                        5,
                        state="D",
                        io_delay_ticks=[0, 900],
                        sleeps=[{"call": "pread64", "looks": LOOKS, "path": "/data/a"}],
                    )
                ]
            )
        ]
    ),
    "a driver that holds it": sections(
        [gpu(0)],
        [
            process(
                threads=[
                    thread(
                        10,
                        state="D",
                        switches=[5, 5],
                        waits={"rwsem_down_read_slowpath": LOOKS},
                        sleeps=[{"call": "ioctl", "looks": LOOKS, "path": "/dev/nvidia-uvm"}],
                    )
                ]
            )
        ],
    ),
}
"""Nodes for further rules."""


def without(found: Mapping[str, JSON], path: tuple[str, ...]) -> dict[str, JSON]:
    """The same node, of which one series, or a whole section, was not read."""
    left = deepcopy(dict(found))
    _remove(left, path)
    return left


def _remove(value: Any, path: tuple[str, ...]) -> None:
    if isinstance(value, list):
        for each in value:
            _remove(each, path)
    elif isinstance(value, dict) and path[0] in value:
        if len(path) == 1:
            del value[path[0]]
        else:
            _remove(value[path[0]], path[1:])


def series(found: Mapping[str, JSON]) -> list[tuple[str, ...]]:
    """Everything that can be missing: each section, and each field of its records."""
    paths: set[tuple[str, ...]] = set()
    for name, data in found.items():
        paths.add((name,))
        _paths(data, (name,), paths)
    return sorted(paths)


KEYS = ("index", "pid", "tid", "path", "point", "name", "address", "id", "began_s", "cost_s")
"""What a record cannot be without, and what says nothing of waiting."""


def _paths(value: Any, above: tuple[str, ...], found: set[tuple[str, ...]]) -> None:
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict) or above[-1] in ("pages", "waits"):
            return
        for key, inner in each.items():
            if key in KEYS or (above[-1], key) == ("look", "seconds"):
                continue
            found.add((*above, key))
            _paths(inner, (*above, key), found)


def first_gpu(node: dict[str, JSON]) -> GpuDiagnosis:
    """What `diagnose` says of the first GPU of a node with these sections."""
    found = diagnose(evidence(node))
    assert not isinstance(found, str), found
    return found[0]


def exit_code(found: GpuDiagnosis) -> int:
    """The exit code of `nodevet diagnose` for a host with this GPU alone."""
    host = HostDiagnosis(host="n1", status=Status.VETTED, gpus=(found,))
    return Diagnosis(id="", nodevet="", started="", seconds=10, hosts=(host,)).exit_code
