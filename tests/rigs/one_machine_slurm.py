"""A real Slurm of one machine, on loopback: its controller and its node's daemon, no munge."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import other_slurm
import pytest
from free_ports import free_port

from nodevet.base.printable import last_line

CONF = """\
ClusterName=nodevet
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
KillWait=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
STARTING = 120  # seconds


class NoSlurmError(Exception):
    """Why this machine has none."""


class Slurm:
    """Who runs srun and scancel needs SLURM_CONF, which is `conf`."""

    def __init__(self, folder: Path, more: str = "", *, address: str = "127.0.0.1") -> None:
        """`more`: lines of its slurm.conf; `address`: of its controller. Raises NoSlurmError."""
        if missing := [name for name in ("slurmctld", "slurmd") if shutil.which(name) is None]:
            raise NoSlurmError(f"no {missing[0]}")
        self.conf = folder / "slurm.conf"
        self._folder = folder
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        self.node = host
        conf = CONF.format(
            host=host, folder=folder, address=address, ports=(free_port(), free_port())
        )
        self.conf.write_text(conf + more)
        self._daemons = [self._start("slurmctld"), self._start("slurmd")]
        end = time.monotonic() + STARTING
        while self.says("sinfo", "-h", "-n", host, "-o", "%t") != "idle":
            has_ended = any(daemon.poll() is not None for daemon in self._daemons)
            if has_ended or time.monotonic() > end:
                self.stop()
                logs = (last_line(log.read_bytes()) for log in folder.glob("*.log"))
                raise NoSlurmError("; ".join(logs))
            time.sleep(0.1)

    def says(self, *argv: str) -> str:
        """What one of Slurm's programs prints."""
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        done = subprocess.run(argv, capture_output=True, text=True, env=env)
        return done.stdout.strip()

    @property
    def jobs(self) -> list[str]:
        """The jobs that run, by number."""
        return self.says("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()

    def restart_controller(self) -> None:
        self._daemons[0].terminate()
        self._daemons[0].wait()
        self._daemons[0] = self._start("slurmctld")

    def boot_node(self) -> None:
        """Start the daemon of the node as after a boot."""
        self._daemons[1].terminate()
        self._daemons[1].wait()
        self._daemons[1] = self._start("slurmd", "-b")

    def stop(self) -> None:
        self.says("scancel", "--user", "root")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait()

    def _start(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([name, "-D", *more], stdout=log, stderr=log, env=env)


def copy_programs(root: Path, *, other: bool = False) -> None:
    """Put this machine's Slurm, or `other_slurm`, under the root of a simulated node."""
    if other:
        other_slurm.copy_to_node(root)
        return
    for name in ("slurmctld", "slurmd", "slurmstepd", "scontrol", "sinfo"):
        found = shutil.which(name)
        if found is None:
            raise NoSlurmError(f"no {name}")
        done = subprocess.run(["ldd", found], capture_output=True, text=True, check=True)
        libraries = [word for word in done.stdout.split() if word.startswith("/")]
        for path in (found, *libraries):
            to = root / Path(path).parent.resolve().relative_to("/") / Path(path).name
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to)
    plugins = Path(next(path for path in libraries if "libslurm" in path)).parent
    shutil.copytree(plugins, root / plugins.relative_to("/"), dirs_exist_ok=True)


@contextmanager
def running_slurm(folder: Path, more: str = "", *, must: bool = False) -> Iterator[Slurm]:
    """A Slurm that runs meanwhile. Skips the test where none starts, unless one must."""
    try:
        slurm = Slurm(folder, more)
    except NoSlurmError as error:
        if must:
            raise
        pytest.skip(f"this machine starts no Slurm: {error}")
    try:
        yield slurm
    finally:
        slurm.stop()
