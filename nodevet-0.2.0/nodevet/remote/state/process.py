"""The CPUs and memory nodes that a process and its threads are bound to."""

import os
import re

from nodevet.remote.look import absent, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.processes import parse_stat
from nodevet.remote.probe.files import names, parse_rows, path_under, read

THREADS = 1 << 14


def look(root: str, pid: str) -> "dict[str, object]":
    """{cpus, mems, started_s: seconds after boot, threads: those with other bindings}."""
    if not re.match(r"[1-9][0-9]{0,9}\Z", pid):
        raise ValueError("not a valid process id")
    folder = "/proc/" + pid
    try:
        _, started = parse_stat(read(root, folder + "/stat").strip())
        process_binding = binding(root, folder + "/status")
        threads = {}
        for thread in names(root, folder + "/task", THREADS):
            if thread != pid:
                thread_binding = binding(root, "{}/task/{}/status".format(folder, thread))
                if thread_binding != process_binding:
                    threads[thread] = thread_binding
    except (FileNotFoundError, ProcessLookupError):
        if os.path.isdir(path_under(root, folder)):
            return unknown("its threads changed while they were read", exists=True)
        return absent()
    return present(dict(process_binding, started_s=started, threads=threads))


def binding(root: str, path: str) -> "dict[str, str]":
    rows = parse_rows(read(root, path))
    return {"cpus": rows["Cpus_allowed_list"], "mems": rows["Mems_allowed_list"]}


def patterns(root: str, name: str) -> "Patterns":
    """numad rebinds processes."""
    return Patterns(services=("numad.service",))
