"""What a process and its threads are bound to."""

import os
import re

from nodevet.remote.look import absent, seen, unseen
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.processes import parse_stat
from nodevet.remote.probe.files import names, parse_rows, path_under, read

THREADS = 1 << 14


def look(root: str, pid: str) -> "dict[str, object]":
    """{cpus, mems} as lists, when it started in seconds after boot, and threads that differ."""
    if not re.match(r"[1-9][0-9]{0,9}\Z", pid):
        raise ValueError("not a valid process id")
    place = "/proc/" + pid
    try:
        _, started = parse_stat(read(root, place + "/stat").strip())
        own = binding(root, place + "/status")
        threads = {}
        for thread in names(root, place + "/task", THREADS):
            if thread != pid:
                bound = binding(root, "{}/task/{}/status".format(place, thread))
                if bound != own:
                    threads[thread] = bound
    except (FileNotFoundError, ProcessLookupError):
        if os.path.isdir(path_under(root, place)):
            return unseen("its threads changed while they were read", exists=True)
        return absent()
    return seen(dict(own, started_s=started, threads=threads))


def binding(root: str, path: str) -> "dict[str, str]":
    rows = parse_rows(read(root, path))
    return {"cpus": rows["Cpus_allowed_list"], "mems": rows["Mems_allowed_list"]}


def patterns(root: str, name: str) -> "Patterns":
    """numad binds processes as it sees fit."""
    return Patterns(services=("numad.service",))
