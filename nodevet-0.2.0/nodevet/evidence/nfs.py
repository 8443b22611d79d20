"""Section nfs."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class NfsMount(Record, frozen=True, kw_only=True):
    """An NFS mount, and what it counted since it was mounted. /proc/1/mountstats."""

    volatile = (
        "age_s",
        "operations",
        "retransmissions",
        "timeouts",
        "queue_ms",
        "rtt_ms",
        "execute_ms",
        "failures",
        "connects",
        "sends",
        "backlog",
    )

    point: Text
    source: Text | None = None  # server:/export
    type: Text | None = None  # nfs, nfs4
    version: Text | None = None  # 3, 4.2
    options: Annotated[tuple[Text, ...], bounds.MOUNT_OPTIONS] | None = None
    age_s: int | None = None  # since it was mounted
    operations: int | None = None
    retransmissions: int | None = None  # requests that were sent again
    timeouts: int | None = None  # that were given up after `retrans` times, and started over
    queue_ms: int | None = None  # of all operations together, before they were sent
    rtt_ms: int | None = None  # from sending them to the answer
    execute_ms: int | None = None  # from asking for them to their end
    failures: int | None = None  # that ended with an error; Linux 5.4
    connections: int | None = None  # transports: nconnect, or more with pNFS and trunking
    connects: int | None = None  # how often they were made
    sends: int | None = None  # requests, of every mount that shares the transports
    backlog: int | None = None  # what waited for a slot, summed at each of these sends


class Nfs(SectionRecord, frozen=True, kw_only=True):
    """Every NFS file system that is mounted, once for several mounts of it with the same counts;
    without the volumes of containers."""

    plural = "NFS mounts"

    found: int | None = None  # how many of them there are
    mounts: Annotated[tuple[NfsMount, ...], bounds.NFS_MOUNTS] | None = None
