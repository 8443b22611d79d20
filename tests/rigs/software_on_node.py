"""Mounts, a DKMS module and Docker on a simulated node, none of them as a baseline expects.

The mounts, systemd, DKMS and make are real. nvidia-ctk is a stand-in that writes what NVIDIA
documents; Docker is a unit that only runs; the kernel's headers are a Makefile that copies a
module's source; depmod lists files.
"""

import shutil
from pathlib import Path

from node_tools import put_on_node
from shown_folders import leader

from simulated_fleet import SimulatedFleet

MOUNTS = """
mkdir /scratch /data /cache
cat >/etc/fstab <<'END'
# of the site
none\t/scratch tmpfs size=1m,noatime 0 0
none /cache  tmpfs size=1m,relatime 0 0
END
printf '%s\\n' '[Mount]' What=none Where=/data Type=tmpfs Options=size=1m,nodev '[Install]' \
    WantedBy=multi-user.target >/etc/systemd/system/data.mount
mount -t tmpfs -o noexec,noatime none /cache
"""
DKMS = """
kernel=$(uname -r)
mkdir -p /usr/src/hello-1.0 /lib/modules/$kernel/build/include
printf 'modules:\\n\\tcp $(M)/hello.c $(M)/hello.ko\\n' >/lib/modules/$kernel/build/Makefile
touch /boot/vmlinuz-$kernel
echo 'int hello;' >/usr/src/hello-1.0/hello.c
cat >/usr/src/hello-1.0/dkms.conf <<'END'
PACKAGE_NAME="hello"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="hello"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make -C ${kernel_source_dir} M=${dkms_tree}/hello/1.0/build modules"
CLEAN="true"
STRIP[0]="no"
END
cat >/usr/sbin/depmod <<'END'
#!/bin/sh
cd "/lib/modules/$2" && find . -name '*.ko' | sort >modules.dep
END
chmod 755 /usr/sbin/depmod
depmod -a $kernel
dkms add -m hello -v 1.0
rmdir /var/lib/dkms/hello/1.0/build  # which every build removes
"""
CTK = r"""
cat >/usr/bin/nvidia-ctk <<'END'
#!/usr/bin/env python3
import json, subprocess, sys
options = dict(word[2:].partition("=")[::2] for word in sys.argv if word.startswith("--"))
if sys.argv[1:3] == ["cdi", "generate"]:
    rows = subprocess.check_output(["nvidia-smi", "-L"], text=True).splitlines()
    devices = [n for i, row in enumerate(rows) for n in (str(i), row.split("UUID: ")[1][:-1])]
    with open(options["output"], "w") as file:  # in place, as nvidia-ctk does
        file.write('cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices:\n')
        for name in [*devices, "all"]:
            file.write(f'- name: "{name}"\n  containerEdits:\n    deviceNodes:\n')
            file.write("    - path: /dev/nvidia0\n")
        file.write("# the mounts of a real one\n" * 400)
else:
    assert sys.argv[1:4] == ["runtime", "configure", "--runtime=docker"]
    with open(options["config"]) as file:
        config = json.load(file)
    runtime = {"args": [], "path": "nvidia-container-runtime"}
    config.setdefault("runtimes", {})["nvidia"] = runtime
    if "set-as-default" in options:
        config["default-runtime"] = "nvidia"
    with open(options["config"], "w") as file:
        json.dump(config, file, indent=4)
END
chmod 755 /usr/bin/nvidia-ctk
printf '{"log-driver": "journald"}' >/etc/docker/daemon.json
cat >/etc/systemd/system/docker.service <<'END'
[Service]
ExecStart=/bin/sh -c "cp /proc/sys/kernel/random/uuid /run/started; exec sleep infinity"
END
systemctl daemon-reload; systemctl start docker
"""


def put_software(fleet: SimulatedFleet, node: str) -> None:
    put_on_node(fleet, node, "dkms")
    make = Path("/proc", str(leader(fleet.name, node)), "root/usr/bin/make")
    shutil.copy2(str(shutil.which("make")), make)
    fleet.run_on(node, f"set -e\n{MOUNTS}{DKMS}{CTK}")
