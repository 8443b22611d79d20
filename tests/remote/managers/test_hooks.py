"""Managers that services run for a site: Slurm, cloud-init, the dispatchers of the network, tuned's
scripts, run-parts; and units by their variables, their instances and what pulls them in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.remote.managers.search import managers

CAP = "#!/bin/sh\nnvidia-smi -pl 500\n"
POWER = "gpu GPU-1:power_limit_mw"
GOVERNOR = "kernel /sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
UNITS = "/etc/systemd/system/"
WANTS = UNITS + "multi-user.target.wants/"
CLOUD = {"/usr/lib/systemd/system/cloud-init.service": "[Service]\nExecStart=/usr/bin/cloud-init\n"}
INSTANCE = "/var/lib/cloud/instance"
DONE = INSTANCE + "/sem/config_"
Tree = Callable[[dict[str, str]], Path]


def started(name: str) -> dict[str, str]:
    """A service that starts at boot."""
    unit = f"/usr/lib/systemd/system/{name}.service"
    return {
        unit: f"[Service]\nExecStart=/usr/sbin/{name}\n",
        f"{WANTS}{name}.service": f"-> {unit}",
    }


SLURM, TUNED = started("slurmd"), started("tuned")
SLURMD = "/usr/lib/systemd/system/slurmd.service"
RUNNING = {
    "/proc/7/status": "Name:\tslurmd\nUid:\t0\t0\t0\t0\n",
    "/proc/7/cmdline": "slurmd\0",
}
ELSEWHERE = {"/x/etc/slurm.conf": "Prolog=/opt/p\n", "/opt/p": CAP}
SEEN = [
    pytest.param(
        {**SLURM, "/etc/slurm/helpers.conf": "Feature=cap,free Helper=/opt/h\n", "/opt/h": CAP},
        POWER,
        ["/opt/h:2"],
        id="a helper of Slurm's node features",
    ),
    pytest.param(
        {**SLURM, "/etc/slurm/job_container.conf": "InitScript=/opt/h\n", "/opt/h": CAP},
        POWER,
        ["/opt/h:2"],
        id="the script of Slurm's job containers",
    ),
    pytest.param(
        {
            **started("done"),
            UNITS + "done.service.d/site.conf": "[Unit]\nOnSuccess=cap.service\n",
            UNITS + "cap.service": "[Service]\nExecStart=nvidia-smi -pl 500\n",
        },
        POWER,
        [f"unit cap.service ({UNITS}cap.service:2)"],
        id="a unit that another one starts as it ends",
    ),
    pytest.param(
        {
            UNITS + "cap.socket": "[Socket]\nListenStream=99\nAccept=yes\n",
            UNITS + "sockets.target.wants/cap.socket": "-> ../cap.socket",
            UNITS + "cap@.service": "[Service]\nExecStart=nvidia-smi -pl 500\n",
        },
        POWER,
        [f"unit cap@.service ({UNITS}cap@.service:2)"],
        id="an instance for each connection to a socket",
    ),
    pytest.param(
        {"/etc/sysconfig/network-scripts/ifup": "", "/sbin/ifup-local": CAP},
        POWER,
        ["/sbin/ifup-local:2"],
        id="ifup-local",
    ),
    pytest.param(
        {"/etc/profile.d/gpu.sh": "nvidia-smi -pl 500\n", "/root/.bashrc": ". /opt/h\n"}
        | {"/opt/h": CAP},
        POWER,
        ["/etc/profile.d/gpu.sh:1", "/opt/h:2"],
        id="the profiles of root's shells",
    ),
    pytest.param(
        {**SLURM, "/etc/slurm/slurm.conf": "Prolog=/etc/slurm/p.sh # x\n", "/etc/slurm/p.sh": CAP},
        POWER,
        ["/etc/slurm/p.sh:2"],
        id="Prolog",
    ),
    pytest.param(
        {
            **SLURM,
            "/etc/slurm/slurm.conf": "include more.conf\n",
            "/etc/slurm/more.conf": "epilog = /etc/slurm/epilog.d/*\n",
            "/etc/slurm/epilog.d/10-gpu": CAP,
        },
        POWER,
        ["/etc/slurm/epilog.d/10-gpu:2"],
        id="Epilog by a pattern, of an included file",
    ),
    pytest.param(
        {
            **SLURM,
            "/etc/slurm-llnl/slurm.conf": "TaskProlog=task.sh\nHealthCheckProgram=/opt/h\n",
            "/etc/slurm-llnl/task.sh": CAP,
            "/opt/h": CAP,
        },
        POWER,
        ["/etc/slurm-llnl/task.sh:2", "/opt/h:2"],
        id="TaskProlog beside slurm.conf, HealthCheckProgram",
    ),
    pytest.param(
        {**SLURM, "/run/slurm/conf/slurm.conf": "CpuFreqDef=Performance\nCPUFREQGOVERNORS=x\n"},
        GOVERNOR,
        ["/run/slurm/conf/slurm.conf:1", "/run/slurm/conf/slurm.conf:2"],
        id="CpuFreqDef, CpuFreqGovernors",
    ),
    pytest.param(
        {
            "/proc/7/status": "Name:\tslurmd\nUid:\t0\t0\t0\t0\n",
            "/proc/7/cmdline": "slurmd\0",
            "/etc/slurm/slurm.conf": "Prolog=/opt/p\n",
            "/opt/p": CAP,
        },
        POWER,
        ["/opt/p:2"],
        id="slurmd without a unit",
    ),
    pytest.param(
        {**SLURM, **ELSEWHERE, SLURMD: "[Service]\nExecStart=/bin/slurmd -f /x/etc/slurm.conf\n"},
        POWER,
        ["/opt/p:2"],
        id="a configuration that slurmd names",
    ),
    pytest.param(
        {
            **SLURM,
            **ELSEWHERE,
            SLURMD: "[Service]\nEnvironmentFile=-/etc/default/slurmd\nExecStart=slurmd $OPT\n",
            "/etc/default/slurmd": "OPT='-f /x/etc/slurm.conf'\n",
        },
        POWER,
        ["/opt/p:2"],
        id="a configuration that slurmd's options name",
    ),
    pytest.param(
        {
            **SLURM,
            **ELSEWHERE,
            SLURMD: "[Service]\nExecStart=slurmd\nEnvironment=SLURM_CONF=/x/etc/slurm.conf\n",
        },
        POWER,
        ["/opt/p:2"],
        id="SLURM_CONF",
    ),
    pytest.param(
        {**SLURM, **ELSEWHERE, SLURMD: "[Service]\nExecStart=/x/sbin/slurmd -D\n"},
        POWER,
        ["/opt/p:2"],
        id="slurmd of another prefix, as in AWS ParallelCluster",
    ),
    pytest.param(
        {**RUNNING, "/proc/7/cmdline": "/x/sbin/slurmd\0-D\0", **ELSEWHERE},
        POWER,
        ["/opt/p:2"],
        id="slurmd of another prefix without a unit",
    ),
    pytest.param(
        {**SLURM, **RUNNING},
        POWER,
        ["/etc/slurm/slurm.conf: cannot be read: slurmd runs, and its configuration is not found"],
        id="slurmd whose configuration is not found",
    ),
    pytest.param(
        {**CLOUD, f"{INSTANCE}/boothooks/part-001": CAP},
        POWER,
        [f"{INSTANCE}/boothooks/part-001:2"],
        id="a boothook",
    ),
    pytest.param(
        {
            **CLOUD,
            DONE + "scripts_user": "",
            f"{INSTANCE}/scripts/part-001": CAP,
            "/etc/cloud/cloud.cfg": "cloud_final_modules:\n - [scripts-user, always]\n",
        },
        POWER,
        [f"{INSTANCE}/scripts/part-001:2"],
        id="user data that runs at each boot",
    ),
    pytest.param(
        {**CLOUD, f"{INSTANCE}/scripts/vendor/part-001": CAP},
        POWER,
        [f"{INSTANCE}/scripts/vendor/part-001:2"],
        id="vendor data that was not run yet",
    ),
    pytest.param(
        {**CLOUD, "/etc/cloud/cloud.cfg.d/9.cfg": "'bootcmd':\n - nvidia-smi -pl 500\n"},
        POWER,
        ["/etc/cloud/cloud.cfg.d/9.cfg:2"],
        id="a key in quotes",
    ),
    pytest.param(
        {
            **started("networking"),
            "/etc/network/interfaces": "iface eth0 inet dhcp\n  post-up nvidia-smi -pl 500\n",
            "/etc/network/interfaces.d/1": "iface eth1 inet dhcp\n  up /opt/p\n",
            "/opt/p": CAP,
            "/etc/dhcp/dhclient-exit-hooks.d/gpu": CAP,
        },
        POWER,
        ["/etc/dhcp/dhclient-exit-hooks.d/gpu:2", "/etc/network/interfaces:2", "/opt/p:2"],
        id="commands of ifupdown, hooks of dhclient",
    ),
    pytest.param(
        {"/etc/init.d/gpu": CAP, "/etc/rc3.d/S01gpu": "-> ../init.d/gpu"},
        POWER,
        ["/etc/init.d/gpu:2"],
        id="a SysV script",
    ),
    pytest.param(
        {"/etc/modprobe.d/x.conf": "install a modprobe -i a && nvidia-smi -pl 500\n"},
        POWER,
        ["/etc/modprobe.d/x.conf:1"],
        id="a command of modprobe",
    ),
    pytest.param(
        {"/etc/systemd/system-generators/gpu": CAP},
        POWER,
        ["/etc/systemd/system-generators/gpu:2"],
        id="a generator",
    ),
    pytest.param(
        {
            **started("supervisor"),
            "/etc/supervisor/conf.d/gpu.conf": "[program:gpu]\ncommand=/opt/p\n",
            "/opt/p": CAP,
        },
        POWER,
        ["/opt/p:2"],
        id="a program of supervisord",
    ),
    pytest.param(
        {
            "/etc/cron.d/x": "5 * * * * root cd / && run-parts --report /opt/hourly\n",
            "/opt/hourly/cap": "+x" + CAP,
        },
        POWER,
        ["/opt/hourly/cap:2"],
        id="run-parts of cron.d",
    ),
    pytest.param(
        {"/etc/anacrontab": "1 5 x nice run-parts /opt/daily\n", "/opt/daily/cap": "+x" + CAP},
        POWER,
        ["/opt/daily/cap:2"],
        id="run-parts of anacrontab",
    ),
    pytest.param(
        {**CLOUD, "/etc/cloud/cloud.cfg.d/9.cfg": "x: 1\nbootcmd:\n - [nvidia-smi, -pl, '500']\n"},
        POWER,
        ["/etc/cloud/cloud.cfg.d/9.cfg:3"],
        id="bootcmd",
    ),
    pytest.param(
        {**CLOUD, f"{INSTANCE}/cloud-config.txt": "runcmd:\n- |\n  nvidia-smi -pl 500\n"},
        POWER,
        [f"{INSTANCE}/cloud-config.txt:3"],
        id="runcmd that was not run yet",
    ),
    pytest.param(
        {**CLOUD, "/var/lib/cloud/scripts/per-boot/cap": CAP},
        POWER,
        ["/var/lib/cloud/scripts/per-boot/cap:2"],
        id="a script of each boot",
    ),
    pytest.param(
        {**started("NetworkManager"), "/etc/NetworkManager/dispatcher.d/pre-up.d/9": CAP},
        POWER,
        ["/etc/NetworkManager/dispatcher.d/pre-up.d/9:2"],
        id="NetworkManager",
    ),
    pytest.param(
        {**started("networkd-dispatcher"), "/etc/networkd-dispatcher/routable.d/9": CAP},
        POWER,
        ["/etc/networkd-dispatcher/routable.d/9:2"],
        id="networkd-dispatcher",
    ),
    pytest.param(
        {**started("networking"), "/etc/network/if-up.d/cap": CAP},
        POWER,
        ["/etc/network/if-up.d/cap:2"],
        id="ifupdown",
    ),
    pytest.param(
        {
            **TUNED,
            "/etc/tuned/active_profile": "gpu",
            "/etc/tuned/gpu/tuned.conf": "[main]\ninclude=base -none\n",
            "/usr/lib/tuned/base/tuned.conf": "[script]\nscript=${i:PROFILE_DIR}/s.sh\n",
            "/usr/lib/tuned/base/s.sh": CAP,
        },
        POWER,
        ["/usr/lib/tuned/base/s.sh:2"],
        id="the script of a profile that another one includes",
    ),
    pytest.param(
        {
            UNITS + "cap.service": (
                "[Service]\nEnvironment=A=1\nEnvironmentFile=-/etc/default/cap\n"
                "ExecStart=/usr/bin/nvidia-smi ${OPTIONS}\n"
            ),
            WANTS + "cap.service": "-> ../cap.service",
            "/etc/default/cap": "# x\nOPTIONS='-pl 500'\n",
        },
        POWER,
        [f"unit cap.service ({UNITS}cap.service:4)"],
        id="EnvironmentFile",
    ),
    pytest.param(
        {
            UNITS + "cap.service": "[Service]\nExecStart=nvidia-smi $A\n",
            UNITS + "cap.service.d/a.conf": '[Service]\nEnvironment=B=1 "A=-pl 500"\n',
            WANTS + "cap.service": "-> ../cap.service",
        },
        POWER,
        [f"unit cap.service ({UNITS}cap.service:2)"],
        id="Environment of a drop-in",
    ),
    pytest.param(
        {
            UNITS + "cap@.service": "[Service]\nExecStart=/bin/true\n",
            UNITS + "cap@0.service.d/a.conf": "[Service]\nExecStartPost=nvidia-smi -pl 5\n",
            WANTS + "cap@0.service": "-> ../cap@.service",
        },
        POWER,
        [f"unit cap@0.service ({UNITS}cap@0.service.d/a.conf:2)"],
        id="a drop-in of an instance",
    ),
    pytest.param(
        {
            UNITS + "cap.service": "[Service]\nExecStart=nvidia-smi -pl 5\n",
            UNITS + "gpu.target": "[Unit]\nWants=other.service cap.service\n",
            UNITS + "multi-user.target.d/gpu.conf": "[Unit]\nWants=gpu.target\n",
        },
        POWER,
        [f"unit cap.service ({UNITS}cap.service:2)"],
        id="a disabled unit that a drop-in of a target pulls in",
    ),
]
FREE = [
    pytest.param(
        {"/etc/slurm/helpers.conf": "Feature=cap Helper=/opt/h\n", "/opt/h": CAP},
        id="a helper of a Slurm that does not run",
    ),
    pytest.param(
        {
            UNITS + "cap.socket": "[Socket]\nListenStream=99\n",
            UNITS + "sockets.target.wants/cap.socket": "-> ../cap.socket",
            UNITS + "cap@.service": "[Service]\nExecStart=nvidia-smi -pl 500\n",
        },
        id="a template that no socket starts",
    ),
    pytest.param({"/sbin/ifup-local": CAP}, id="ifup-local without the scripts that run it"),
    pytest.param(
        {
            "/etc/profile.d/gpu.csh": "nvidia-smi -pl 5\n",
            "/etc/profile.d/a.sh": "# nvidia-smi -pl 5\n",
        },
        id="a comment of a profile, and what bash does not read",
    ),
    pytest.param(
        {"/etc/slurm/slurm.conf": "Prolog=/opt/p\nCpuFreqDef=x\n", "/opt/p": CAP}, id="no slurmd"
    ),
    pytest.param(
        {
            **SLURM,
            "/etc/slurm/slurm.conf": "#Prolog=/opt/p\nPrologFlags=x # Prolog=/opt/p\n",
            "/opt/p": CAP,
        },
        id="no Prolog",
    ),
    pytest.param(
        {
            "/proc/7/status": "Name:\tslurmd\nUid:\t9\t9\t9\t9\n",
            "/etc/slurm/slurm.conf": "Prolog=/opt/p\n",
            "/opt/p": CAP,
        },
        id="a user's slurmd",
    ),
    pytest.param(
        {"/etc/cron.d/x": "@daily root run-parts /opt/x\n", "/opt/x/readme": CAP[10:]},
        id="run-parts runs no data",
    ),
    pytest.param(
        {
            **CLOUD,
            "/etc/cloud/cloud-init.disabled": "",
            "/etc/cloud/cloud.cfg": "bootcmd: [nvidia-smi -pl 5]\n",
        },
        id="cloud-init is disabled",
    ),
    pytest.param(
        {
            **CLOUD,
            f"{INSTANCE}/sem/config_runcmd": "",
            f"{INSTANCE}/cloud-config.txt": "runcmd: [nvidia-smi -pl 5]\nbootcmd: [x]\n",
        },
        id="runcmd was run",
    ),
    pytest.param({"/etc/NetworkManager/dispatcher.d/9": CAP}, id="no NetworkManager"),
    pytest.param(ELSEWHERE, id="no slurmd"),
    pytest.param(SLURM, id="a slurmd that is not configured and does not run"),
    pytest.param(
        {
            **CLOUD,
            **dict.fromkeys([DONE + "scripts_user", DONE + "scripts_vendor"], ""),
            f"{INSTANCE}/scripts/part-001": CAP,
            f"{INSTANCE}/scripts/vendor/part-001": CAP,
            "/etc/cloud/cloud.cfg": "cloud_final_modules: [scripts-user]\n",
        },
        id="user data and vendor data were run",
    ),
    pytest.param(
        {
            "/etc/network/interfaces": "iface eth0 inet dhcp\n  up nvidia-smi -pl 500\n",
            "/etc/dhcp/dhclient-exit-hooks.d/gpu": CAP,
            "/etc/supervisor/conf.d/gpu.conf": "[program:gpu]\ncommand=nvidia-smi -pl 5\n",
        },
        id="no ifupdown, no supervisord",
    ),
    pytest.param(
        {
            "/etc/init.d/off": CAP,
            "/etc/rc3.d/K01off": "-> ../init.d/off",
            "/etc/init.d/unit": CAP,
            "/etc/rc3.d/S01unit": "-> ../init.d/unit",
            UNITS + "unit.service": "-> /dev/null",
        },
        id="SysV scripts that are off, or whose unit is masked",
    ),
    pytest.param(
        {
            **TUNED,
            "/etc/tuned/active_profile": "gpu",
            "/etc/tuned/gpu/tuned.conf": "[variables]\ninclude=/etc/tuned/gpu-variables.conf\n",
        },
        id="variables of tuned are no profile",
    ),
    pytest.param(
        {
            UNITS + "cap.service": "[Service]\nExecStart=/bin/true\n",
            UNITS + "cap.service.d/a.conf": "[Service]\nExecStartPost=nvidia-smi -pl 5\n",
        },
        id="a drop-in of a disabled unit",
    ),
    pytest.param(
        {
            UNITS + "cap.service": "[Service]\nExecStart=nvidia-smi -pl 5\n",
            UNITS + "off.service": "[Unit]\nWants=cap.service\n",
        },
        id="a disabled unit pulls in nothing",
    ),
]


def planted(tree: Tree, files: dict[str, str]) -> Path:
    """As `tree`; a text that begins with +x may be run."""
    root = tree({path: text.removeprefix("+x") for path, text in files.items()})
    for path, text in files.items():
        if text.startswith("+x"):
            (root / path.lstrip("/")).chmod(0o755)
    return root


def managers_of(resource: str, root: Path) -> list[str]:
    kind, name = resource.split(" ", 1)
    (found,) = managers({"root": str(root), "resources": [{"kind": kind, "name": name}]})
    return found


@pytest.mark.parametrize(("files", "resource", "named"), SEEN)
def test_e22_a_service_that_sets_a_resource_indirectly_is_named(
    tree: Tree, files: dict[str, str], resource: str, named: list[str]
) -> None:
    assert managers_of(resource, planted(tree, files)) == named


@pytest.mark.parametrize("files", FREE)
def test_e22_a_stopped_service_is_not_a_manager(tree: Tree, files: dict[str, str]) -> None:
    root = planted(tree, files)
    assert managers_of(POWER, root) == [] == managers_of(GOVERNOR, root)


def test_e22_files_that_include_one_another_are_read_to_a_limit(tree: Tree) -> None:
    files = {f"/etc/slurm/{n}.conf": f"Include {(n + 1) % 100}.conf\n" for n in range(100)}
    start = {"/etc/slurm/slurm.conf": "Include 0.conf\nInclude slurm.conf\n"}
    (found,) = managers_of(POWER, tree({**SLURM, **files, **start}))
    assert found.endswith("slurm.conf includes too many files to read all of them")
    pulling = {UNITS + f"{n}.service": f"[Unit]\nWants={1 - n}.service\n" for n in (0, 1)}
    assert (
        managers_of(GOVERNOR, tree({**pulling, WANTS + "0.service": "-> ../0.service"}))[1:] == []
    )


def test_e22_long_values_and_odd_bytes_hide_no_manager(tree: Tree) -> None:
    value = "$A" * 4000
    unit = f"[Service]\nEnvironment=A={'x' * 9000}\nExecStart=nvidia-smi {value} -pl 5\n"
    root = tree({UNITS + "a.service": unit, WANTS + "a.service": "-> ../a.service", **SLURM})
    (root / "etc/slurm").mkdir(parents=True)
    (root / "etc/slurm/slurm.conf").write_bytes(b"Prolog=\xff\xfe'\x00\nInclude \xff*[\n")
    assert managers_of(POWER, root) == [f"unit a.service ({UNITS}a.service:3)"]
