"""The real TuneD on a simulated node."""

from node_tools import put_on_node

from simulated_fleet import SimulatedFleet

SYSFS = r"""d=/usr/lib/systemd/system/tuned.service.d; mkdir -p $d
printf '[Service]\nEnvironment=SYSTEMD_DEVICE_VERIFY_SYSFS=0\n' >$d/sim.conf
rm /usr/share/dbus-1/system-services/org.freedesktop.PolicyKit1.service
systemctl daemon-reload"""
"""libudev lists no CPUs of a simulated /sys without the variable. polkitd cannot start, because the
node lacks its user, and D-Bus would wait 25 s for it."""
START = """\
systemctl start dbus; mkdir -p /etc/tuned/site; echo manual >/etc/tuned/profile_mode
echo site >/etc/tuned/active_profile; printf %s {} >/etc/tuned/site/tuned.conf
systemctl start tuned; systemctl is-active tuned
"""
"""Starts TuneD with the profile `site` of this text, a word of a shell."""


def put_tuned(fleet: SimulatedFleet, node: str) -> None:
    """TuneD, stopped and without a profile."""
    put_on_node(fleet, node, "tuned")
    fleet.run_on(node, f"rm /etc/tuned/*profile*; mkdir /var/log/tuned; {SYSFS}")
