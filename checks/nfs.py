"""NFS file systems are mounted with the expected options and answer without retransmissions.

**Why it matters.** A mount without `hard` gives jobs I/O errors when the server is slow. A mount
without nconnect, or with a small rsize, reads a dataset at a fraction of the speed of its peers.
Retransmissions mean a lossy network or a server that cannot keep up: data loading stalls and GPUs
wait.

**Read from** /proc/1/mountstats, else /proc/self/mountstats: the kernel's own counters. The check
touches neither the mount nor its server, so a dead server blocks nothing.

**Verdicts.** Without `paths` the check judges every NFS mount except container volumes. A node
without NFS mounts is not applicable, and so is a path that is not mounted now (see the check
`mounts`). `options` are options as the kernel shows them, `vers=4.2`, `hard`, `proto=tcp`; a value
may have `*`. Retransmissions and times are means per operation since the file system was mounted;
below 1,000 operations they are not judged. With `--sample` the check judges the time between both
readings instead, if it had 1,000 operations and, for retransmissions, enough to decide. A counter
that went back is unknown, unless the file system was mounted meanwhile. With `--since` the check
judges the time since the last look in the same way. `queue` is the time that an operation waited on
the node before it was sent, which more connections shorten; `rtt` is the time of network and
server.

**To fix it** change the options in /etc/fstab or the automounter's map; most take effect only after
a new mount, not with remount. Retransmissions: `nfsiostat 5` and `mountstats` show whether they
continue, `ethtool -S` and the switch show whether packets are dropped; then look at the server.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.before import growth_since
from nodevet.checking.expected import matches
from nodevet.checking.named import reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.nfs import Nfs, NfsMount
from nodevet.evidence.rates import Sample, earlier_sample, is_above
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    Value,
    not_applicable,
    unknown,
)

FEW = 1000  # operations
Path = Annotated[str, Meta(pattern=r"^/", max_length=256, title="a path that begins with /")]
Positive = Annotated[int, Meta(ge=1)]
Limit = Annotated[float, Meta(ge=0)]


class Params(CheckParams):
    """`nfs: {options: [hard, proto=tcp], maximum_retransmissions_percent: 0.1}` or
    `nfs: {paths: [/data], options: [vers=4.2], minimum_nconnect: 8, minimum_rsize: 1048576}`"""

    paths: tuple[Path, ...] = ()
    """Mount points to judge; if empty, all NFS mounts."""
    options: tuple[str, ...] = ()
    """Options that every mount must have."""
    without: tuple[str, ...] = ()
    """Options that no mount may have."""
    minimum_nconnect: Positive | None = None
    """The fewest connections to the server."""
    minimum_rsize: Positive | None = None
    """The least bytes of one read."""
    minimum_wsize: Positive | None = None
    """The least bytes of one write."""
    maximum_retransmissions_percent: Limit | None = None
    """The largest share of the operations since the mount."""
    maximum_queue_ms: Limit | None = None
    """The longest mean wait of an operation before it is sent."""
    maximum_rtt_ms: Limit | None = None
    """The longest mean time of an operation in network and server."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Nfs]
    if params == Params(paths=params.paths):
        yield unknown(why="the baseline names nothing to check")
    elif section.data is None:
        yield unknown(why=f"NFS mounts: {section.why}")
    elif section.data.mounts is None:
        yield unread(NODE, section.data, "mounts")
    elif section.data.found is None:
        yield unread(NODE, section.data, "found")
    elif section.data.found > len(section.data.mounts):
        why = f"{len(section.data.mounts)} of {section.data.found} NFS mounts were read"
        yield unknown(why=why)
    else:
        yield from judge_mounts(section.data.mounts, params, earlier_sample(evidence, Nfs))


def judge_mounts(
    mounts: tuple[NfsMount, ...], params: Params, sample: Sample[Nfs] | None
) -> Iterator[Finding]:
    if not mounts and not params.paths:
        yield not_applicable(why="no NFS file system is mounted")
    for mount in mounts:
        if not params.paths or mount.point in params.paths:
            yield from judge_mount(mount, params, sample)
    points = {mount.point for mount in mounts}
    for path in dict.fromkeys(params.paths):
        if path not in points:
            subject = Subject(kind="mount", id=path)
            yield not_applicable(subject, why="no NFS file system is mounted there")


def judge_mount(mount: NfsMount, params: Params, sample: Sample[Nfs] | None) -> Iterator[Finding]:
    subject = Subject(kind="mount", id=mount.point)
    aspects = [*of_options(mount, params), *of_counts(mount, params, sample)]
    if not aspects:
        yield not_applicable(subject, why=f"fewer than {FEW} operations since it was mounted")
    yield from aspect_findings(subject, aspects, advice=advice)


def advice(bad: list[str]) -> str:
    if {"retransmissions", "rtt"} & set(bad):
        return (
            "`nfsiostat 5` shows whether it continues; then check with `ethtool -S` and on the "
            "switch whether packets are dropped, and check the load of the server"
        )
    if bad == ["queue"]:
        return "requests wait on the node: more connections (nconnect) shorten the wait"
    return "correct the options in /etc/fstab or the automounter's map, and mount it again"


def of_options(mount: NfsMount, params: Params) -> Iterator[Aspect]:
    sizes = {"rsize": params.minimum_rsize, "wsize": params.minimum_wsize}
    least = {name: size for name, size in sizes.items() if size is not None}
    if params.options or params.without or least:
        if mount.options is None:
            yield unread_aspect(mount, "options")
            return
        lacking = [option for option in params.options if not has_option(mount.options, option)]
        forbidden = [option for option in params.without if has_option(mount.options, option)]
        if lacking or forbidden:
            expected = ", ".join((*lacking, *(f"no {option}" for option in forbidden)))
            actual = ", ".join(
                (*(actual_option(mount.options, option) for option in lacking), *forbidden)
            )
            yield aspect_if("options", False, expected=expected, actual=actual)
        elif params.options or params.without:
            expected = ", ".join((*params.options, *(f"no {option}" for option in params.without)))
            yield aspect_if("options", True, expected=expected, actual=expected)
        for name, size in least.items():
            yield at_least(name, size, number(mount.options, name), f"the options have no {name}")
    if params.minimum_nconnect is not None:
        why = f"connections: {mount.why('connections')}"
        yield at_least("nconnect", params.minimum_nconnect, mount.connections, why)


def at_least(name: str, minimum: int, actual: int | None, why: str) -> Aspect:
    if actual is None:
        return unknown_aspect(name, why)
    return aspect_if(name, actual >= minimum, expected=f"at least {minimum}", actual=str(actual))


def has_option(options: tuple[str, ...], option: str) -> bool:
    return any(matches(actual, option) for actual in options)


def actual_option(options: tuple[str, ...], option: str) -> str:
    """The option in place of the expected one: another value, or `no OPTION`.

    >>> actual_option(("soft", "vers=3"), "vers=4.2"), actual_option(("soft", "vers=3"), "hard")
    ('vers=3', 'no hard')
    """
    name = option.partition("=")[0]
    return next((actual for actual in options if actual.partition("=")[0] == name), f"no {option}")


def number(options: tuple[str, ...], name: str) -> int | None:
    """The value of an option such as rsize=1048576.

    >>> number(("rw", "rsize=65536"), "rsize")
    65536
    """
    for option in options:
        key, _, value = option.partition("=")
        if key == name and value.isascii() and value.isdigit() and len(value) < 16:
            return int(value)
    return None


def of_counts(mount: NfsMount, params: Params, sample: Sample[Nfs] | None) -> Iterator[Aspect]:
    for name, limit, field, factor, unit in (
        ("retransmissions", params.maximum_retransmissions_percent, "retransmissions", 100, "%"),
        ("queue", params.maximum_queue_ms, "queue_ms", 1, " ms"),
        ("rtt", params.maximum_rtt_ms, "rtt_ms", 1, " ms"),
    ):
        if limit is None:
            continue
        total, operations = getattr(mount, field), mount.operations
        if operations is None or total is None:
            missing = "operations" if operations is None else field
            yield unread_aspect(mount, missing)
        elif operations < 0 or total < 0:
            yield unknown_aspect(name, f"{field}: {total} of {operations} operations")
        elif sample and (fresh := in_sample(mount, (name, field, limit, factor, unit), sample)):
            yield fresh
        elif operations >= FEW:
            share = factor * total / operations
            most, actual = f"at most {limit:g}{unit}", f"{share:.3g}{unit}"
            yield aspect_if(name, share <= limit, expected=most, actual=actual)


def in_sample(
    mount: NfsMount, limit: tuple[str, str, float, int, str], sample: Sample[Nfs]
) -> Aspect | None:
    """The judgement of the sampled time; None if it had too few operations, or began before the
    mount."""
    name, field, most, factor, unit = limit
    if mount.age_s is None:
        return unread_aspect(mount, "age_s")
    if 0 <= mount.age_s < sample.seconds:
        return None
    mounts = (sample.data.mounts if sample.data else None) or ()
    earlier_mounts = [
        earlier_mount for earlier_mount in mounts if earlier_mount.point == mount.point
    ]
    before = earlier_mounts[0] if len(earlier_mounts) == 1 else None
    total = growth_since(sample, getattr(before, field, None), getattr(mount, field))
    done = growth_since(sample, before.operations if before else None, mount.operations)
    if total is None or done is None or total.again != done.again:
        return None
    if total.by is None or done.by is None:
        why = sample.why or (done.why if done.by is None else total.why)
        return unknown_aspect(name, f"{field}, sampled: {why}")
    if done.by < FEW:
        return None
    share = factor * total.by / done.by
    over: bool | None = share > most
    if field == "retransmissions":
        over = is_above(total.by, done.by, most, per=factor)
    actual = f"{share:.3g}{unit} of {done.text}"
    if over is None:
        return None
    return aspect_if(name, not over, expected=f"at most {most:g}{unit}", actual=actual)


LEARNT = ("hard", "soft", "vers", "proto", "nconnect", "rsize", "wsize")


def learn(evidence: Evidence) -> Value:
    """The options that all mounts have in common and that affect performance."""
    data = evidence[Nfs].data
    option_lists = [
        mount.options for mount in (data.mounts if data else None) or () if mount.options
    ]
    common = (
        [option for option in option_lists[0] if all(option in other for other in option_lists)]
        if option_lists
        else []
    )
    options = [option for option in common if option.partition("=")[0] in LEARNT]
    return {"options": options} if options else None


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *reads_of("earlier.nfs.mounts[]", "operations", "point", "queue_ms", "retransmissions"),
        "earlier.nfs.mounts[].rtt_ms",
        "nfs.found",
        *reads_of("nfs.mounts[]", "age_s", "connections", "operations", "options[]", "point"),
        *reads_of("nfs.mounts[]", "queue_ms", "retransmissions", "rtt_ms"),
    ),
    judge=judge,
    unasked="only the site knows its mount options: write nfs: {options: [hard, proto=tcp]}",
    learn=learn,
    severity=Severity.WARNING,
)
