"""Changes a node's description while it runs; applies only the differences."""

from collections import Counter
from collections.abc import Iterator, Mapping

from nodevet_sim.description import SimulatedNode
from nodevet_sim.library import SINCE_BOOT, pairs, split, update
from nodevet_sim.nspawn import disk, network
from nodevet_sim.nspawn.boot import NodeError, numbers
from nodevet_sim.nspawn.node import BOOTS, DEVICE_MODE, HAS_IPV6, RUNS, RunningNode


async def apply(running: RunningNode, new: SimulatedNode) -> None:
    """Make a node what `new` says, now and at its next boots. Raises NodeError, OSError.

    Its description then stays as before, so that a second try does everything again.
    """
    old = running.node
    refuse(old, new)
    if running.state != RUNS:
        raise NodeError(
            f"{new.name} is {running.state}, so nothing was changed; "
            + ("wait until it runs" if running.state == BOOTS else f"nodevet sim reboot {new.name}")
        )
    running.node = new
    try:
        await _apply(running, old, new)
    except BaseException:
        running.node = old
        raise


async def _apply(running: RunningNode, old: SimulatedNode, new: SimulatedNode) -> None:
    kernel = ("files", "links", "modules", "swap")
    if any(getattr(new, name) != getattr(old, name) for name in kernel):
        running.reload_kernel()
    if new.state != old.state:
        before, after = old.state or "", new.state or ""
        update(running.nvml_state, lambda live: revised(live, before, after))
    for line in (Counter(new.kernel_log) - Counter(old.kernel_log)).elements():
        running.log(line)  # what is gone from the description stays in the log until a reboot
    if new.earlier_boots != old.earlier_boots:
        running.write_wtmp()
    await _files(running, old, new)
    await _device_nodes(running, old, new)
    await _sessions(running, old, new)
    if new.default_route != old.default_route:
        await running.connect(network.default_route, "add" if new.default_route else "del")
    if HAS_IPV6 and new.default_route_ipv6 != old.default_route_ipv6:
        verb = "add" if new.default_route_ipv6 else "del"
        await running.connect(network.default_route_ipv6, verb)
    if new.storage_address != old.storage_address:
        await running.connect(network.storage_address, "add" if new.storage_address else "del")
    for command in new.boot[len(old.boot) :]:
        await running.inside("sh", "-c", command)
    for load in old.load:
        if load not in new.load:
            await running.stop_load(load)
    for load in new.load:
        if load not in old.load:
            await running.start_load(load)


def refuse(old: SimulatedNode, new: SimulatedNode) -> None:
    """Raises NodeError if a node would have to be made again."""
    if (new.name, new.disk_mb, new.age_s) != (old.name, old.disk_mb, old.age_s):
        raise NodeError("name, disk size and uptime of a node are fixed when it is created")
    if (new.state is None) != (old.state is None):
        raise NodeError(
            "a driver is installed when a node is created; change the scenario and "
            "boot the fleet again"
        )
    if new.boot[: len(old.boot)] != old.boot:
        raise NodeError(
            "what a fault did to a node's disk cannot be undone; create the fleet again"
        )


def revised(live: str, old: str, new: str) -> str:
    """The live state with only the differences between two descriptions changed.

    A change of the description overrides a value that was set on the node. Pure.
    """
    described, settings = split(live)
    before, after = pairs(old.splitlines()), pairs(new.splitlines())
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    kept = {key: value for key, value in pairs(described).items() if key not in changed}
    now = {**kept, **{key: value for key, value in after.items() if key in changed}}
    stays = {
        key: value
        for key, value in pairs(settings or []).items()
        if not any(covers(wide, key) for wide in changed)
    }
    return "".join([*_rows(now), f"{SINCE_BOOT}\n", *_rows(stays)])


def _rows(values: Mapping[str, str]) -> Iterator[str]:
    return (f"{key} = {value}\n" for key, value in values.items())


def covers(wide: str, key: str) -> bool:
    """Whether `gpu.*.power_limit_mw` or the key itself speaks of this key."""
    ours, theirs = wide.split("."), key.split(".")
    return len(ours) == len(theirs) and all(
        one in ("*", other) for one, other in zip(ours, theirs, strict=True)
    )


async def _files(running: RunningNode, old: SimulatedNode, new: SimulatedNode) -> None:
    """Files of the node's disk, and the units that start at boot."""
    root = running.folder / "root"  # the overlay itself: the node sees it at once
    for path, content in new.root_files.items():
        if old.root_files.get(path) != content:
            disk.put(root, path, content, disk.mode_of(content))
    for path in old.root_files.keys() - new.root_files.keys():
        disk.inside(root, path).unlink(missing_ok=True)
    for swap in new.swap:
        if swap not in old.swap:
            disk.put_swap(root, swap)
    if new.root_files != old.root_files:
        await running.inside("systemctl", "daemon-reload")
    for unit in new.services:
        if unit not in old.services:
            await running.inside("systemctl", "--quiet", "enable", "--now", unit)
    for unit in old.services:
        if unit not in new.services:
            await running.inside("systemctl", "--quiet", "disable", "--now", unit)


async def _device_nodes(running: RunningNode, old: SimulatedNode, new: SimulatedNode) -> None:
    for path in set(old.device_nodes) - set(new.device_nodes):
        await running.inside("rm", "-f", path)
    for index, path in enumerate(sorted(new.device_nodes)):
        if path not in old.device_nodes:
            major, minor = numbers(path, index)
            await running.inside("mknod", path, "c", str(major), str(minor))
        mode = new.device_modes.get(path, DEVICE_MODE)
        if path not in old.device_nodes or mode != old.device_modes.get(path, DEVICE_MODE):
            await running.inside("chmod", mode, path)
    running.write_device_nodes()


async def _sessions(running: RunningNode, old: SimulatedNode, new: SimulatedNode) -> None:
    """What sshd does: it reads its settings again only while it runs."""
    settings = ("sshd", "delay_s", "clock_offset_s", "clock_synchronised", "clock_error_ms")
    if all(getattr(old, name) == getattr(new, name) for name in settings):
        return
    running.write_session()
    signal = f"{disk.LIBRARY}/sshd-signal"
    if old.sshd == "hangs":
        await running.inside(signal, "CONT")
    if new.sshd == "stopped":
        await running.inside("systemctl", "stop", "ssh.service")
        return
    if old.sshd == "stopped":
        await running.inside("systemctl", "start", "ssh.service")
    await running.inside(signal, "HUP")
    if new.sshd == "hangs":
        await running.inside(signal, "STOP")
