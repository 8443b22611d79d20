"""Real time clients on a simulated node: chrony, systemd-timesyncd and ntpd (NTPsec) of this
machine's distribution. Only the kernel's clock is not real: see node_clock.c.
"""

import shutil
import subprocess
from pathlib import Path

from node_tools import put_on_node
from shown_folders import leader

from simulated_fleet import SimulatedFleet

CLOCK = "/opt/node-clock.so"
SERVER = "chronyd -u root -x -f /opt/ntp-server.conf"
"""A server on the node itself, which its clients reach as soon as it runs."""
PLACE = f"""\
place() {{
    mkdir -p /etc/systemd/system/$1.service.d
    printf '%s\\n' '[Unit]' ConditionCapability= ConditionVirtualization= '[Service]' "$2" \
        ProtectSystem=no Environment=LD_PRELOAD={CLOCK} \
        'ExecStartPre=+/bin/chmod 666 /run/nodevet-sim/adjtimex' \
        >/etc/systemd/system/$1.service.d/simulated.conf
}}
"""
MADE = f"""\
{PLACE}
place chrony User=root
place systemd-timesyncd AmbientCapabilities=
systemd-sysusers
chmod 666 /run/nodevet-sim/adjtimex
echo 'DAEMON_OPTS="-u root"' >/etc/default/chrony
printf '%s\\n' 'server 127.0.0.1 iburst minpoll -2 maxpoll 0' 'port 0' rtcsync 'makestep 1 3' \
    >/etc/chrony/chrony.conf
printf '%s\\n' '[Time]' NTP=127.0.0.1 ConnectionRetrySec=1 >/etc/systemd/timesyncd.conf
printf '%s\\n' 'local stratum 3' allow 'cmdport 0' 'bindcmdaddress /' \
    'pidfile /run/ntp-server.pid' >/opt/ntp-server.conf
systemctl daemon-reload
update-rc.d chrony defaults; systemctl disable -q chrony
"""
NTPD = f"""\
{PLACE}
place ntpsec 'ExecStart=
ExecStart=/usr/sbin/ntpd -g -c /etc/ntpsec/ntp.conf -p /run/ntpd.pid'
mkdir -p /var/lib/ntpsec; echo 0.000 >/var/lib/ntpsec/ntp.drift
printf '%s\\n' 'driftfile /var/lib/ntpsec/ntp.drift' 'refclock local stratum 3' 'tos minsane 1' \
    >/etc/ntpsec/ntp.conf
systemctl daemon-reload
update-rc.d ntpsec defaults; systemctl disable -q ntpsec
"""
"""As root: a node gives nobody CAP_SYS_TIME. Port 123 is ntpd's, so a server on the same node has
none: ntpd follows its driver of the local clock."""


def put_clients(fleet: SimulatedFleet, node: str, folder: Path) -> None:
    """chrony and timesyncd, stopped and disabled; timesyncd is masked, as on every node."""
    put_on_node(fleet, node, "chrony")
    put_on_node(fleet, node, "systemd-timesyncd")
    _put_clock(fleet, node, folder)
    fleet.run_on(node, MADE)


def put_ntpd(fleet: SimulatedFleet, node: str, folder: Path) -> None:
    """ntpd alone, stopped and disabled, with a clock of its own to follow."""
    put_on_node(fleet, node, "ntpsec")
    _put_clock(fleet, node, folder)
    fleet.run_on(node, NTPD)


def _put_clock(fleet: SimulatedFleet, node: str, folder: Path) -> None:
    library, root = folder / "clock.so", Path("/proc", str(leader(fleet.name, node)), "root")
    source = Path(__file__).with_name("node_clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    shutil.copy(library, f"{root}{CLOCK}")
