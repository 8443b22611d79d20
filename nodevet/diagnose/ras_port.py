"""The address of --nccl-ras: where NCCL's RAS listens on the host of rank 0."""

import ipaddress
import re
from contextlib import suppress
from typing import Any, NamedTuple

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.diagnose.launches import LEAST_S
from nodevet.diagnose.model import JobTarget

ANSWER_S = 20.0  # after the watch: to look at the processes again, and for the second answer
ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([^\s:\[\]]{1,45})):([0-9]{1,5})")
RAS_AGAIN = (
    "--nccl-ras asks at most twice, and if a launcher fails, another visits its hosts again: leave "
    "out the launchers of nodevet.toml"
)
LOCAL = ("127.0.0.1", "::1")  # what `localhost` may be: NCCL takes one of them


class RasPort(NamedTuple):
    """A port, and the IP addresses at which it may be."""

    hosts: tuple[str, ...]
    port: int

    def wish(self, job: JobTarget | None) -> dict[str, Any]:
        """What the probe must know to ask it."""
        of = {"step": job.step, "uid": job.uid} if job else {}
        return {"hosts": list(self.hosts), "port": self.port, **of}


def ras_port(text: str, seconds: float) -> RasPort:
    """The port of an address such as `localhost:28028` or `[::1]:28028`, for a watch of so many
    seconds. Raises UserError."""
    match = ADDRESS.fullmatch(text)
    host = (match[1] or match[2]) if match else ""
    hosts: tuple[str, ...] = LOCAL if host == "localhost" else ()
    with suppress(ValueError):
        hosts = hosts or (str(ipaddress.ip_address(host)),)
    if not match or not hosts or not 0 < int(match[3]) < 1 << 16:
        raise UserError(
            f"--nccl-ras {brief(text)}: write localhost:PORT, IPV4:PORT or [IPV6]:PORT, as "
            f"NCCL_RAS_ADDR of the job has it; NCCL's default is localhost:28028"
        )
    if seconds < LEAST_S:
        raise UserError(f"--nccl-ras compares two answers: watch for {LEAST_S:g}s or longer")
    return RasPort(hosts, int(match[3]))
