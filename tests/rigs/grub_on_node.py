"""The GRUB of this machine's distribution on a simulated node, which boots with what its grub.cfg
says. GRUB is real but for `grub-probe`, which finds no block device below a simulated node's disk:
a script answers instead."""

from node_tools import put_on_node

from simulated_fleet import SimulatedFleet

PROBE = r"""#!/bin/sh
for word; do case $word in --target=*) target=${word#--target=} ;; esac; done
case ${target-} in
    device) echo /dev/vda1 ;;
    fs) echo ext2 ;;
    abstraction) cat /run/abstraction 2>/dev/null ;;
    *) exit 1 ;;
esac
exit 0
"""
CLOUD = "/etc/default/grub.d/50-cloudimg-settings.cfg"
MENU = "/boot/grub/grub.cfg"
SETUP = rf"""
cat >/usr/sbin/grub-probe <<'END'
{PROBE}END
cp /usr/share/grub/default/grub /etc/default/grub
printf 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n' >{CLOUD}
mkdir -p /boot/grub
grub-editenv /boot/grub/grubenv create
echo kernel | tee /boot/vmlinuz-6.1.0-1-amd64 >/boot/vmlinuz-6.1.0-2-amd64
update-grub
"""


def put_grub(fleet: SimulatedFleet, node: str) -> None:
    """The node, booted by GRUB."""
    put_on_node(fleet, node, "grub2-common")
    fleet.run_on(node, SETUP)
    fleet.sim("reboot", node)
