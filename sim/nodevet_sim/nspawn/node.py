"""One simulated node: its disk, its network, its simulated kernel, and its boots.

Everything here runs inside the supervisor, in its own mount namespace: the mounts, the network
namespaces and their interfaces end with the supervisor.
"""

import asyncio
import os
import re
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as altered
from pathlib import Path

from nodevet_sim import kernel, wtmp
from nodevet_sim.description import Content, GpuLoad, LogLine, SimulatedNode
from nodevet_sim.library import rebooted
from nodevet_sim.modules import module_list
from nodevet_sim.nspawn import boot, diff, disk, grub, network
from nodevet_sim.nspawn.boot import NodeError, replace, run
from nodevet_sim.nspawn.diff import Listing
from nodevet_sim.nspawn.network import NodeNetwork
from nodevet_sim.nspawn.tools import ADJTIMEX, CLOCK, RINGS, BuiltTools
from nodevet_sim.wtmp import BootRecord

BOOT_SECONDS = 120.0
KERNEL_SECONDS = 20.0
STOP_SECONDS = 60.0
NET = ("sys/class/net", "sys/devices/virtual/net")  # where the node's own interfaces show
NETDEVS = "sys/class/net/"
OWN = {f"sys/class/net/{name}": f"../../devices/virtual/net/{name}" for name in ("eth0", "lo")}

HAS_IPV6 = Path("/proc/net/if_inet6").exists()
SHUT_DOWN = "shut-down"  # in `shared`: its systemd stopped what ran
DEVICE_MODE = "0666"  # as the driver makes device nodes
SYNCHRONISED = "0 0x2001 {:.0f} 300"
UNSYNCHRONISED = "5 0x2041 16000000 16000000"
"""What adjtimex(2) returns, and its status, maxerror and esterror (µs): TIME_OK, STA_PLL and
STA_NANO; TIME_ERROR, STA_UNSYNC and the most that the kernel says."""

CMDLINE, SMT = "proc/cmdline", "sys/devices/system/cpu/smt/control"
IOMMU_TYPE = re.compile(r"sys/kernel/iommu_groups/\d+/type")
RUNS, BOOTS, OFF, FAILED = "running", "booting", "off", "failed"


def reason(error: Exception) -> str:
    """Why a node does not do, for people."""
    if isinstance(error, (NodeError, OSError)):
        return str(error)
    return f"internal error in nodevet sim (please report): {type(error).__name__}: {error}"


def _booted_with(cmdline: str, files: Mapping[str, Content]) -> dict[str, Content]:
    """What the kernel says of its command line: without iommu=pt the IOMMU translates. With it,
    it does so only if that is described, as if the BIOS overrode it."""
    groups = (path for path in files if IOMMU_TYPE.fullmatch(path))
    types = {} if "iommu=pt" in cmdline.split() else dict.fromkeys(groups, "DMA-FQ\n")
    return {**types, CMDLINE: f"{cmdline}\n"}


@dataclass
class RunningNode:
    """A running node. `state` is one of RUNS, BOOTS, OFF, FAILED."""

    node: SimulatedNode
    folder: Path
    network: NodeNetwork
    identity: disk.NodeIdentity
    tools: BuiltTools
    below: disk.SharedLayers
    groups: tuple[Path, ...]
    state: str = BOOTS
    why: str = ""
    boots: int = 0
    booted_s: float = 0.0  # CLOCK_BOOTTIME of this machine at the node's boot
    leader: int = 0  # pid of the node's systemd, outside
    made: Listing | None = None  # its disk at the end of its first boot
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change or reboot at a time
    _is_cold: bool = False  # it was off before this boot
    _power: asyncio.Event = field(default_factory=asyncio.Event)  # it is to be switched on
    _is_killed: bool = False  # its processes were, in this boot
    _history: list[BootRecord] = field(default_factory=list)  # its boots so far
    _cmdline: str | None = None  # of this boot, by GRUB; None: as it is described
    _nspawn: Process | None = None
    _kernel: Process | None = None
    _loads: list[tuple[GpuLoad, str]] = field(default_factory=list)
    _count: int = 0

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest"

    @property
    def nvml_state(self) -> Path:
        return self.shared / "nvml.state"

    async def prepare(self) -> None:
        """Disk and network of a node that was never booted. Raises NodeError."""
        place = self.folder / "disk"
        for path in (place, self.folder / "root", self.shared / "kernel"):
            path.mkdir(parents=True)
        self.shared.chmod(0o755)
        size = f"size={self.node.disk_mb}m,mode=0755"
        await run("mount", "-t", "tmpfs", "-o", size, "nodevet-sim", place)
        (place / "upper").mkdir()
        (place / "work").mkdir()
        tools, below = self.tools.node_files(self.node), self.below.merged
        await asyncio.to_thread(disk.write, place / "upper", self.node, self.identity, tools, below)
        layers = f"{self.below.option},upperdir={place}/upper,workdir={place}/work"
        await run("mount", "-t", "overlay", "-o", layers, "nodevet-sim", self.folder / "root")
        for command in network.up(self.network, self.node.name):
            await run(*command)
        if self.node.default_route:
            await self.connect(network.default_route, "add")
        if HAS_IPV6:
            await self.connect(network.address_ipv6, "add")
        if HAS_IPV6 and self.node.default_route_ipv6:
            await self.connect(network.default_route_ipv6, "add")
        if self.node.storage_address:
            await self.connect(network.storage_address, "add")

    async def connect(self, command: Callable[..., tuple[str, ...]], verb: str) -> None:
        """Add or take away a route or an address; nothing on the node is allowed to."""
        await run(*command(self.network, self.node.name, verb))

    async def live(self, turn: asyncio.Semaphore) -> None:
        """Boot, and boot again after every reboot; a node that is off waits for `reboot`."""
        while True:
            self._power.clear()
            try:
                async with turn:
                    ending = await self.boot()
                code = await self._run(ending)
                off, why = OFF, f"systemd-nspawn ended with {code}" if code else ""
            except Exception as error:
                code, off, why = None, FAILED, reason(error)
            if self._history:
                in_order = (self.shared / SHUT_DOWN).exists()
                self._history[-1] = altered(self._history[-1], shut_down=in_order)
            await self._say(BOOTS)
            await self._end()
            self._is_cold = False
            if code != boot.REBOOT:
                await self._say(off, why)
                self._is_cold = not self._power.is_set()  # else it is a reset
                await self._power.wait()
            self._restore_files()

    def _restore_files(self) -> None:
        """What a fault did to files is over if this boot ends it."""
        ended = ("reboot", "power") if self._is_cold else ("reboot",)
        for files in map(self.node.restored.get, ended):
            self.node = altered(self.node, files={**self.node.files, **(files or {})})

    async def _run(self, ending: "asyncio.Task[int]") -> int:
        """Until the node ends; what systemd-nspawn ended with. Raises NodeError."""
        if self._kernel is not None:
            kernel_ends = asyncio.create_task(self._kernel.wait())
            await asyncio.wait((ending, kernel_ends), return_when="FIRST_COMPLETED")
            if not ending.done():
                raise NodeError(f"its simulated kernel exited with {kernel_ends.result()}")
            kernel_ends.cancel()
        return await ending

    async def _end(self) -> None:
        """End everything of the last boot."""
        self._kill()
        self.leader = 0
        if self._nspawn is not None:
            await self._nspawn.wait()
        await self._stop_kernel()

    async def boot(self) -> "asyncio.Task[int]":
        """Boot once and wait until systemd is up; the task ends with the node."""
        await self._say(BOOTS)
        self._is_killed = False
        self.boots += 1
        age = self.node.age_s if self.boots == 1 else 0
        self.booted_s = float(int(time.clock_gettime(time.CLOCK_BOOTTIME) - age))
        monotonic = int(time.clock_gettime(time.CLOCK_MONOTONIC) - age)
        self._write_shared()
        self._cmdline = await asyncio.to_thread(grub.booted, self.folder / "root")
        self._history.append(BootRecord(time.time() - self.uptime_s))
        self.write_wtmp()
        await self._start_kernel()
        with boot.notifications(self.folder / "notify") as notify:
            command = boot.command(
                self.node.name, self.folder, boottime=int(self.booted_s), monotonic=monotonic
            )
            with (self.folder / "console").open("ab") as console:
                self._nspawn = await self._spawn(
                    *command, stdout=console, env={"NOTIFY_SOCKET": str(self.folder / "notify")}
                )
            ending = asyncio.create_task(self._nspawn.wait())
            await self._await_ready(notify, ending)
        if self.made is None:
            self.made = await asyncio.to_thread(self.disk)
        self._loads.clear()
        for load in self.node.load:
            await self.start_load(load)
        await self._say(RUNS)
        return ending

    def disk(self) -> Listing:
        """What on its disk is not as in the layers below."""
        upper, root = self.folder / "disk" / "upper", self.folder / "root"
        return diff.listing(upper, root, self.below.merged)

    async def _await_ready(self, notify: socket.socket, ending: "asyncio.Task[int]") -> None:
        loop = asyncio.get_running_loop()
        limit = loop.time() + BOOT_SECONDS
        while True:
            hearing = asyncio.create_task(loop.sock_recv(notify, 4096))
            await asyncio.wait(
                (hearing, ending), timeout=limit - loop.time(), return_when="FIRST_COMPLETED"
            )
            if not hearing.done():
                hearing.cancel()
                how = (
                    f"exited with {ending.result()}"
                    if ending.done()
                    else f"did not come up within {BOOT_SECONDS:g} s"
                )
                console = (self.folder / "console").read_bytes()
                raise NodeError(f"{self.node.name} {how}: {boot.last_words(console)}")
            fields = dict(
                row.partition("=")[::2]
                for row in hearing.result().decode("ascii", "replace").splitlines()
            )
            self.leader = int(fields.get("X_NSPAWN_LEADER_PID", self.leader))
            if fields.get("READY") == "1":
                return

    def _write_shared(self) -> None:
        """What the node reads when it boots."""
        self.write_device_nodes()
        commands = "".join(f"{command}\n" for command in self.node.boot)
        (self.shared / SHUT_DOWN).unlink(missing_ok=True)
        (self.shared / "boot").write_text(commands, encoding="utf-8")
        self.write_session()
        self.write_rings()
        place = self.nvml_state
        if self.node.state is None:
            place.unlink(missing_ok=True)
        else:
            text = place.read_text(encoding="utf-8") if self.boots > 1 else self.node.state
            replace(place, rebooted(text, powered=self._is_cold))
        for process in (self.shared / "nvml.state.processes").glob("*"):
            process.unlink()

    def write_device_nodes(self) -> None:
        rows = []
        for index, path in enumerate(sorted(self.node.device_nodes)):
            major, minor = boot.numbers(path, index)
            mode = self.node.device_modes.get(path, DEVICE_MODE)
            rows.append(f"{path} {major} {minor} {mode}\n")
        (self.shared / "device-nodes").write_text("".join(rows), encoding="utf-8")

    def write_session(self) -> None:
        """What sshd does to sessions."""
        rows = []
        if self.node.delay_s:
            (self.shared / "delay").write_text(f"{self.node.delay_s}\n", encoding="ascii")
            rows.append(f"ForceCommand {disk.LIBRARY}/session\n")
        preloaded, offset = [f"{disk.LIBRARY}/{name}" for name in (ADJTIMEX, RINGS)], ""
        if self.node.clock_offset_s:
            preloaded.append(f"{disk.LIBRARY}/{CLOCK}")
            offset = f" NODEVET_SIM_CLOCK={self.node.clock_offset_s}"
        variables = f"LD_PRELOAD={':'.join(preloaded)}{offset}\n"
        rows.append(f"SetEnv {variables}")
        replace(self.shared / "environment", variables.replace(" ", "\n"))
        error_us = self.node.clock_error_ms * 1000
        synchronised = SYNCHRONISED.format(error_us)
        clock_text = synchronised if self.node.clock_synchronised else UNSYNCHRONISED
        replace(self.shared / "adjtimex", f"{clock_text}\n")
        replace(self.shared / "sshd.conf", "".join(rows))
        for name in ("hangs", "stopped"):
            mark = self.shared / f"sshd-{name}"
            if self.node.sshd == name:
                mark.touch()
            else:
                mark.unlink(missing_ok=True)

    def write_rings(self) -> None:
        """The ring sizes that the driver of each NIC has after a boot, and the largest, as of
        mlx5_core: nspawn/rings.c."""
        paths = (path for path in self.node.links if path.startswith(NETDEVS))
        rows = (f"{path.removeprefix(NETDEVS)} 1024 8192 1024 8192\n" for path in sorted(paths))
        replace(self.shared / "rings", "".join(rows))

    def write_wtmp(self) -> None:
        """When it was booted so far, and before it was made."""
        made = self._history[0].at_s
        earlier = [
            BootRecord(made - boot.days * wtmp.DAY, boot.shut_down)
            for boot in self.node.earlier_boots
        ]
        disk.put(self.folder / "root", wtmp.PATH, wtmp.text([*earlier, *self._history]), 0o664)

    def write_manifest(self) -> None:
        """What the simulated kernel serves. Its log does not repeat injected lines."""
        log = [
            altered(line, seconds=min(line.seconds, self.uptime_s))
            for line in self.node.kernel_log
            if line.seconds is not None
        ]
        swap = "".join(f"{area.name} {area.kb} {area.used_kb}\n" for area in self.node.swap)
        files = {
            **self.node.files,
            kernel.SWAP: swap,
            kernel.MODULES: module_list(self.node.modules),
        }
        if self._cmdline is not None:
            files.update(_booted_with(self._cmdline, files))
        links = {**OWN, **self.node.links}
        replace(self.manifest, kernel.manifest(files, links, folders=NET, log=log))

    def log(self, line: LogLine) -> None:
        """Inject a line into the kernel log. Raises OSError."""
        with (self.shared / "kernel" / kernel.INJECT).open("wb", buffering=0) as log:
            log.write(kernel.inject(line))

    @property
    def uptime_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.booted_s

    async def _start_kernel(self) -> None:
        self.write_manifest()
        mounted = self.shared / "kernel"
        booted_usec = int(self.booted_s * 1e6)
        command = kernel.command(
            self.tools.kernelfs, self.manifest, mounted, booted_usec=booted_usec
        )
        self._kernel = await self._spawn(*command, stdout=PIPE)
        limit = time.monotonic() + KERNEL_SECONDS
        while not kernel.ready(mounted):
            if self._kernel.returncode is not None or time.monotonic() > limit:
                output = b""
                if self._kernel.stdout is not None and self._kernel.returncode is not None:
                    output = await self._kernel.stdout.read(2000)
                raise NodeError(f"the simulated kernel did not start: {boot.last_words(output)}")
            await asyncio.sleep(0.01)
        if "nosmt" in (self._cmdline or "").split():
            (mounted / SMT).write_text("off\n", encoding="ascii")

    async def _stop_kernel(self) -> None:
        if self._kernel is not None:
            with suppress(ProcessLookupError):
                self._kernel.terminate()
            await self._kernel.wait()
        self._kernel = None
        with suppress(NodeError):  # it unmounted itself
            await run("umount", "--lazy", self.shared / "kernel")

    def reload_kernel(self) -> None:
        """Let the simulated kernel take what changed in the description."""
        self.write_manifest()
        if self._kernel is not None:
            self._kernel.send_signal(signal.SIGHUP)

    async def fail(self, why: str) -> None:
        await self._say(FAILED, why)

    async def start_load(self, load: GpuLoad) -> None:
        """A process on the node that holds GPUs, as a transient unit. Raises NodeError."""
        self._count += 1
        unit = f"load-{self._count}.service"
        command = [f"{disk.LIBRARY}/nodevet-sim-load", "--gpus", ",".join(map(str, load.gpus))]
        command += ["--memory-mb", str(load.memory_mb), "--command", load.command]
        command += ["--utilization", str(load.utilization_percent)]
        command += ["--cpus", load.cpus] if load.cpus is not None else []
        command += ["--mems", load.mems] if load.mems is not None else []
        command += ["--uid", str(load.uid)] if load.uid else []
        await self.inside("systemd-run", "--quiet", f"--unit={unit}", *command)
        self._loads.append((load, unit))

    async def stop_load(self, load: GpuLoad) -> None:
        """End one process of this load. Raises NodeError."""
        for found, unit in self._loads:
            if found == load:
                await self.inside("systemctl", "stop", unit)
                self._loads.remove((found, unit))
                return

    async def inside(self, *command: str) -> str:
        """Run a command of root on the node; its output. Raises NodeError."""
        if not self.leader:
            raise NodeError(f"{self.node.name} is off")
        every = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
        return await run("nsenter", f"--target={self.leader}", *every, "--", *command)

    async def reboot(self) -> None:
        """Reboot, or boot what is off, and wait until it is up. Raises NodeError."""
        before = self.boots
        if self.state == BOOTS:
            raise NodeError(f"{self.node.name} is booting; try again when it is up")
        if not before:
            raise NodeError(
                f"{self.node.name} could not be created: {self.why}; "
                "create the fleet again: nodevet sim down, then nodevet sim up"
            )
        if self.state == RUNS:
            await self._go_down()
        self._power.set()
        await self.until(lambda: self.boots > before and self.state != BOOTS)
        if self.state != RUNS:
            raise NodeError(f"{self.node.name} did not come up after the reboot: {self.why}")

    @property
    def is_settled(self) -> bool:
        """Whether it stays as it is: it runs and was not killed, or is off and not switched on."""
        stays_off = self.state in (OFF, FAILED) and not self._power.is_set()
        return stays_off or (self.state == RUNS and not self._is_killed)

    @property
    def has_power(self) -> bool:
        """What its BMC says: on while it runs, boots or shuts down."""
        return self.state in (RUNS, BOOTS)

    async def switch(self, how: str) -> None:
        """Do what a BMC was asked for, `on`, `off`, `soft` or `reset`, without waiting for it. As
        some BMCs do, it drops an `on` that comes while the node goes off."""
        if how == "on" and not self.has_power:
            self._power.set()
        if how == "soft":
            with suppress(NodeError):  # a node that hangs takes no notice
                await self.inside("systemctl", "--no-block", "poweroff")
        if how in ("off", "reset") and self._nspawn is not None and self.has_power:
            if how == "reset":
                self._power.set()
            self._kill()

    def _kill(self) -> None:
        """End its processes at once. They outlive a killed systemd-nspawn, but not their init."""
        self._is_killed = True
        if self._nspawn is None or self._nspawn.returncode is not None:
            return  # the number of its init may be another process's by now
        with suppress(ProcessLookupError):
            if self.leader:
                os.kill(self.leader, signal.SIGKILL)
        with suppress(ProcessLookupError):
            self._nspawn.kill()

    async def _go_down(self) -> None:
        """Ask systemd to reboot; if it does not, kill it."""
        patience = STOP_SECONDS
        try:
            await self.inside("systemctl", "--no-block", "reboot")
        except NodeError:
            patience = 0
        try:
            await asyncio.wait_for(self.until(lambda: self.state != RUNS), patience)
        except asyncio.TimeoutError:
            self._kill()

    async def until(self, settled: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(settled)

    async def _say(self, state: str, why: str = "") -> None:
        async with self.changed:
            self.state, self.why = state, why
            self.changed.notify_all()

    async def _spawn(
        self, *command: str, stdout: object, env: Mapping[str, str] | None = None
    ) -> Process:
        """A process in the node's control group, which ends with the supervisor."""
        entry = "".join(f"echo $$ > {group}/cgroup.procs; " for group in self.groups)
        return await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "sh", "-c", f'set -e; {entry} exec "$@"', "sh"),
            *map(str, command),
            stdin=DEVNULL,
            stdout=stdout,  # type: ignore[arg-type]
            stderr=STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
