"""Who uses GPUs: the processes that NVML names and those that hold /dev/nvidia<N> open."""

from nodevet.remote.main import Refused
from nodevet.remote.probe.children import gather

SHARE = 0.6  # of the deadline, for NVML


def users(request):
    """{gpus: [{uuid, minor, pids}], processes: the probe's section of them}.

    `gpus` is null where NVML is not there; `complete` as the probe says it. Raises Refused
    where NVML or /proc does not answer: then nobody knows.
    """
    root, seconds = request["root"], request["deadline"]
    found = gather(("gpu",), root, request, seconds * SHARE)
    gpu = found["gpu"]
    if gpu["status"] not in ("ok", "absent"):
        raise Refused("NVML: " + gpu["why"])
    section = gather(("processes",), root, dict(request, found=found), seconds * (1 - SHARE))
    processes = section["processes"]
    if processes["status"] != "ok":
        raise Refused("processes: " + processes["why"])
    gpus = None
    if gpu["status"] == "ok":
        gpus = [
            {
                "uuid": each.get("uuid"),
                "minor": each.get("minor_number"),
                "pids": pids_of(each),
            }
            for each in gpu["data"].get("gpus") or ()
        ]
    return dict(processes["data"], gpus=gpus)


def pids_of(gpu):
    """The pids that NVML names on one GPU; null where it does not say."""
    known = gpu.get("processes")
    return None if known is None else [process["pid"] for process in known]
