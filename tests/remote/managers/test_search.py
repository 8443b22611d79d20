"""Who else sets a thing: each kind of owner is found where it is written, and nothing else."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.managers.search import managers
from nodevet.remote.systemd import UNIT_PATH

CPUS = "/sys/devices/system/cpu"
BASE = "/usr/lib/tuned/throughput-performance/tuned.conf"
GOVERNOR = f"kernel {CPUS}/cpufreq/policy0/scaling_governor"
SWAPPINESS = "kernel /proc/sys/vm/swappiness"
HIGHEST, LOWEST = (f"kernel {CPUS}/cpufreq/policy0/scaling_{word}_freq" for word in ("max", "min"))
TURBO, BOOST = f"kernel {CPUS}/intel_pstate/no_turbo", f"kernel {CPUS}/cpufreq/boost"
LATENCY = "unit nodevet-cpu-idle-states.service"
PAGES = "kernel /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
MTU = "kernel /sys/class/net/ens1/mtu"
THP = "kernel /sys/kernel/mm/transparent_hugepage/enabled"
POWER = "gpu GPU-1:power_limit_mw"
COMPUTE = "gpu GPU-1:compute_mode"
PERSISTENCE = "unit nvidia-persistenced.service"
NOUVEAU = "module nouveau"
BINDING = "file /etc/systemd/system/train.service.d/nodevet-numa-binding.conf"
WANTS = "/etc/systemd/system/multi-user.target.wants/"
UNITS = "/etc/systemd/system/"
SITE = UNITS + "site.service:3"
TUNED = {
    WANTS + "tuned.service": "-> /usr/lib/systemd/system/tuned.service",
    "/usr/lib/systemd/system/tuned.service": "[Service]\nExecStart=/usr/sbin/tuned\n",
    "/etc/tuned/active_profile": "gpu\n",
    "/etc/tuned/gpu/tuned.conf": "[main]\ninclude=throughput-performance\n",
}


def service(command: str, name: str = "site.service", *, enabled: bool = True) -> dict[str, str]:
    files = {UNITS + name: f"[Service]\nType=oneshot\nExecStart={command}\n"}
    return {**files, **({WANTS + name: f"-> ../{name}"} if enabled else {})}


PERSISTENCED, VENDOR = "nvidia-persistenced.service", "/usr/lib/systemd/system/"
PM = "[Service]\nExecStartPost=-+/bin/sh -c 'nvidia-smi -i GPU-1 -pm 1'\n"
OWNED = [
    (
        {
            WANTS + PERSISTENCED: f"-> {VENDOR}{PERSISTENCED}",
            VENDOR + PERSISTENCED: "[Service]\nExecStart=/usr/bin/nvidia-persistenced --verbose\n",
            UNITS + PERSISTENCED + ".d/site.conf": PM.replace("-pm 1", "-pm 0"),
        },
        "gpu GPU-1:persistence_mode",
        [f"unit {PERSISTENCED} ({UNITS}{PERSISTENCED}.d/site.conf:2)"],
    ),
    (
        {"/etc/tmpfiles.d/cpu.conf": f"w {CPUS}/cpu*/cpufreq/scaling_governor - - - - x"},
        GOVERNOR,
        ["/etc/tmpfiles.d/cpu.conf:1"],
    ),
    (
        {**TUNED, BASE: "[bootloader]\ncmdline_gpu=+iommu=off nosmt\n"},
        "boot_parameter nosmt",
        [f"unit tuned.service ({BASE}:2)"],
    ),
    (
        {"/usr/lib/tmpfiles.d/thp.conf": f"# no\nw {THP[7:]} - - - - x"},
        THP,
        ["/usr/lib/tmpfiles.d/thp.conf:2"],
    ),
    (
        {"/etc/sysfs.conf": "devices/system/cpu/cpu0/cpufreq/scaling_governor = powersave"},
        GOVERNOR,
        ["/etc/sysfs.conf:1"],
    ),
    (
        {"/etc/sysctl.d/50-site.conf": "; x\nvm/swappiness = 1\n"},
        SWAPPINESS,
        ["/etc/sysctl.d/50-site.conf:2"],
    ),
    ({"/etc/sysctl.conf": "-vm.swap*=1"}, SWAPPINESS, ["/etc/sysctl.conf:1"]),
    (
        {"/usr/lib/sysctl.d/99-vendor.conf": "vm.swappiness=1"},
        SWAPPINESS,
        ["/usr/lib/sysctl.d/99-vendor.conf:1"],
    ),
    (
        {"/etc/cron.d/tune": "@reboot root sysctl -w vm.swappiness=1"},
        SWAPPINESS,
        ["/etc/cron.d/tune:1"],
    ),
    (
        {
            "/var/spool/cron/crontabs/root": "@reboot /opt/tune\n",
            "/opt/tune": "#!/bin/sh\nnvidia-smi -pl 500",
        },
        POWER,
        ["/opt/tune:2"],
    ),
    (
        {"/etc/rc.local": "#!/bin/sh\nnvidia-smi -i 0 --power-limit=500\n"},
        POWER,
        ["/etc/rc.local:2"],
    ),
    (
        service("/usr/bin/nvidia-smi -pl 500"),
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
    ),
    (
        {
            **service("-/bin/sh -c '/opt/cap.sh 500'"),
            "/opt/cap.sh": "#!/bin/sh\n# -\nnvidia-smi \\\n -pl $1\n",
        },
        POWER,
        ["unit site.service (/opt/cap.sh:3)"],
    ),
    (
        {
            **service("/bin/true"),
            UNITS + "site.service.d/x.conf": "[Service]\nExecStartPre=nvidia-smi -c 3\n",
        },
        COMPUTE,
        ["unit site.service (/etc/systemd/system/site.service.d/x.conf:2)"],
    ),
    (
        {**service("/bin/dcgmi config -g 1 --set -P 500")},
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
    ),
    (
        {
            **service("nvidia-smi -pl 5", enabled=False),
            UNITS + "timers.target.wants/site.timer": "-> ../site.timer",
        },
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
    ),
    (
        service("/usr/bin/cpupower frequency-set -g powersave"),
        GOVERNOR,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
    ),
    (
        service("/sbin/ip link set dev ens1 mtu 9000"),
        MTU,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
    ),
    (
        {"/etc/tmpfiles.d/mtu.conf": f"w {MTU[7:]} - - - - 9000"},
        MTU,
        ["/etc/tmpfiles.d/mtu.conf:1"],
    ),
    (service("/sbin/ip link set dev ens10 mtu 9000 up"), MTU, []),
    (service("/usr/lib/cpupower $START", "cpupower.service"), GOVERNOR, ["unit cpupower.service"]),
    (
        {"/etc/default/cpufrequtils": 'GOVERNOR="powersave"\n'},
        GOVERNOR,
        ["/etc/default/cpufrequtils:1"],
    ),
    (
        {"/etc/udev/rules.d/9.rules": 'KERNEL=="cpu0", ATTR{cpufreq/scaling_governor}="powersave"'},
        GOVERNOR,
        ["/etc/udev/rules.d/9.rules:1"],
    ),
    (
        {
            **TUNED,
            BASE: "[cpu]\ngovernor=performance\n",
        },
        GOVERNOR,
        ["unit tuned.service (" + BASE + ":2)"],
    ),
    (
        {
            **TUNED,
            BASE: "[vm]\ntransparent_hugepages=never\n",
        },
        THP,
        ["unit tuned.service (" + BASE + ":2)"],
    ),
    (
        {"/etc/sysctl.d/90-dpdk.conf": "# dpdk\nvm.nr_hugepages = 1024\n"},
        PAGES.format(2048),
        ["/etc/sysctl.d/90-dpdk.conf:2"],
    ),
    (
        {
            "/proc/meminfo": "Hugepagesize:    1048576 kB\n",
            "/etc/sysctl.d/90-dpdk.conf": "vm.nr_hugepages = 16\n",
        },
        PAGES.format(1048576),
        ["/etc/sysctl.d/90-dpdk.conf:1"],
    ),
    *(
        (service(f"/bin/sh -c '{command}'"), PAGES.format(1048576), [f"unit site.service ({SITE})"])
        for command in (
            "echo 1 >/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages",
            "for size in /sys/kernel/mm/hugepages/*; do echo 0 >$size/nr_hugepages; done",
            "hugeadm --pool-pages-min 1G:16",
        )
    ),
    *(
        (service(f"/bin/sh -c '{command}'"), resource, [f"unit site.service ({SITE})"])
        for command, resource in (
            (
                "for cpu in /sys/devices/system/cpu/cpu*; do echo 1 >$cpu/x/scaling_max_freq",
                HIGHEST,
            ),
            ("cpupower -c all frequency-set -u 2GHz", HIGHEST),
            ("cpupower frequency-set --min 2GHz", LOWEST),
            ("cpufreq-set -c 0 -rd 2GHz", LOWEST),
            ("tuned-adm profile powersave", HIGHEST),
            ("cpupower set --turbo-boost 0", TURBO),
            ("x86_energy_perf_policy --turbo-enable 0", TURBO),
            ("echo 0 >/sys/devices/system/cpu/cpufreq/boost", BOOST),
        )
    ),
    *(
        (service("/usr/bin/x", name), resource, [f"unit {name}"])
        for name in ("tlp.service", "auto-cpufreq.service")
        for resource in (GOVERNOR, HIGHEST, TURBO)
    ),
    ({"/etc/default/cpufrequtils": 'MAX_SPEED="2000"\n'}, HIGHEST, ["/etc/default/cpufrequtils:1"]),
    *(
        ({**TUNED, BASE: f"[cpu]\n{line}\n"}, resource, [f"unit tuned.service ({BASE}:2)"])
        for line, resource in (
            ("max_perf_pct=50", HIGHEST),
            ("min_perf_pct=100", LOWEST),
            ("/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq=2000000", HIGHEST),
            ("no_turbo=1", TURBO),
            ("boost=0", BOOST),
            ("force_latency=cstate.id:1|3", LATENCY),
        )
    ),
    (
        service("/bin/sh -c 'exec 3>/dev/cpu_dma_latency; sleep infinity'"),
        LATENCY,
        [f"unit site.service ({SITE})"],
    ),
    (TUNED, SWAPPINESS, ["unit tuned.service (profile 'throughput-performance': not found)"]),
    (
        {"/etc/modprobe.d/site.conf": "blacklist nouveau\n"},
        NOUVEAU,
        ["/etc/modprobe.d/site.conf:1"],
    ),
    (
        {"/sys/module/nouveau/x": "", "/etc/modules-load.d/site.conf": "nouveau"},
        NOUVEAU,
        ["/etc/modules-load.d/site.conf:1"],
    ),
    (
        {"/etc/cron.d/x": "@reboot root systemctl -q stop nvidia-persistenced"},
        PERSISTENCE,
        ["/etc/cron.d/x:1"],
    ),
    (
        {UNITS + "train.service.d/site.conf": "[Service]\nCPUAffinity=0-3\n"},
        BINDING,
        ["/etc/systemd/system/train.service.d/site.conf:2"],
    ),
    (
        {UNITS + "service.d/all.conf": "[Service]\nCPUAffinity=0-3\n"},
        BINDING,
        ["/etc/systemd/system/service.d/all.conf:2"],
    ),
    (
        {
            UNITS + "train-.service.d/a.conf": "[Service]\nNUMAPolicy=bind\n",
            "/run/systemd/system/train-a@.service.d/b.conf": "[Service]\nNUMAMask=1\n",
            UNITS + "train-a@2.service.d/c.conf": "[Service]\nCPUAffinity=1\n",
            UNITS + "train-b.service.d/d.conf": "[Service]\nCPUAffinity=1\n",
        },
        BINDING.replace("train", "train-a@1"),
        [
            "/etc/systemd/system/train-.service.d/a.conf:2",
            "/run/systemd/system/train-a@.service.d/b.conf:2",
        ],
    ),
    (
        {"/etc/apt/preferences.d/nvidia": "Package: nvidia-driver-550 cuda\nPin: version 1\n"},
        "package nvidia-driver-550",
        ["/etc/apt/preferences.d/nvidia:1"],
    ),
    (
        {
            "/etc/apt/preferences": "Package: cuda\nPin: version 1\n\nPackage: *nvidia*\nPin: x\n",
            "/etc/apt/preferences.d/a": "Package: src:x /^libnvidia-/\nPin: version 1\n",
        },
        "package libnvidia-compute-550:amd64",
        ["/etc/apt/preferences:4", "/etc/apt/preferences.d/a:1"],
    ),
    (service("/usr/bin/numad", "numad.service"), "process 12", ["unit numad.service"]),
]


def managers_of(resource: str, root: Path) -> list[str]:
    kind, name = resource.split(" ", 1)
    (found,) = managers({"root": str(root), "resources": [{"kind": kind, "name": name}]})
    return found


@pytest.mark.parametrize(("files", "resource", "named"), OWNED)
def test_a_manager_is_named_with_its_file_and_line(
    tree: Callable[[dict[str, str]], Path], files: dict[str, str], resource: str, named: list[str]
) -> None:
    assert managers_of(resource, tree(files)) == named


CAP = "nvidia-smi -pl 500"
SMI = f"[Service]\nExecStart=/usr/bin/{CAP}\n"
TIMER = UNITS + "timers.target.wants/nightly.timer"
UNSEEN = [  # each was found nowhere
    pytest.param(
        {
            **service(CAP, enabled=False),
            TIMER: "-> ../nightly.timer",
            UNITS + "nightly.timer": "[Timer]\nOnCalendar=daily\nUnit=site.service\n",
        },
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
        id="a timer with Unit=",
    ),
    pytest.param(
        {
            UNITS + "cap@.service": SMI,
            TIMER: "-> ../nightly.timer",
            UNITS + "nightly.timer": "[Timer]\nOnCalendar=daily\n",
            UNITS + "nightly.timer.d/u.conf": "[Timer]\nUnit=cap@0.service\n",
        },
        POWER,
        ["unit cap@.service (/etc/systemd/system/cap@.service:2)"],
        id="a timer whose drop-in names an instance",
    ),
    pytest.param(
        {
            **service(CAP, enabled=False),
            UNITS + "sockets.target.wants/cap.socket": "-> ../cap.socket",
            UNITS + "cap.socket": "[Socket]\nListenStream=9\nService=site.service\n",
        },
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
        id="a socket with Service=",
    ),
    pytest.param(
        {"/run/systemd/transient/run-r1.service": SMI},
        POWER,
        ["unit run-r1.service (/run/systemd/transient/run-r1.service:2)"],
        id="a transient unit",
    ),
    pytest.param(
        {
            **service(CAP, enabled=False),
            "/etc/udev/rules.d/9.rules": 'KERNEL=="nvidia0", ENV{SYSTEMD_WANTS}+="site.service"',
        },
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
        id="a device that wants a service",
    ),
    pytest.param(
        {
            "/etc/udev/rules.d/9.rules": 'KERNEL=="nvidia0", RUN+="/opt/cap %k 500"\n',
            "/opt/cap": "#!/bin/sh\nnvidia-smi -i $1 -pl $2\n",
        },
        POWER,
        ["/opt/cap:2"],
        id="RUN+= of udev",
    ),
    pytest.param(
        {
            "/usr/lib/udev/rules.d/9.rules": 'KERNEL=="x", PROGRAM="cap 1", RUN{program}+="/bin/x"',
            "/usr/lib/udev/cap": "#!/bin/sh\n/opt/inner\n",
            "/opt/inner": f"#!/bin/sh\n{CAP}\n",
        },
        POWER,
        ["/opt/inner:2"],
        id="a program of udev and what it calls",
    ),
    pytest.param(
        {**service("/bin/bash -e /opt/cap"), "/opt/cap": f"{CAP}\n"},
        POWER,
        ["unit site.service (/opt/cap:1)"],
        id="a script without #!, of a shell",
    ),
    pytest.param(
        {"/etc/cron.d/x": "@reboot root . /opt/cap >>/var/log/cap\n", "/opt/cap": f"{CAP}\n"},
        POWER,
        ["/opt/cap:1"],
        id="a script without #!, sourced",
    ),
    pytest.param(
        {
            "/etc/cron.d/x": "@reboot root cap-all --now\n",
            "/usr/local/sbin/cap-all": f"#!/bin/sh\n{CAP}\n",
        },
        POWER,
        ["/usr/local/sbin/cap-all:2"],
        id="a site's own program by its name",
    ),
    pytest.param(
        {"/etc/tmpfiles.d/thp.conf": f'w "{THP[7:]}" - - - - never\n'},
        THP,
        ["/etc/tmpfiles.d/thp.conf:1"],
        id="a quoted path of tmpfiles.d",
    ),
    pytest.param(
        {"/etc/tmpfiles.d/thp.conf": "w '" + THP[7:].replace("e/e", r"e\x2fe") + "' - - - - x"},
        THP,
        ["/etc/tmpfiles.d/thp.conf:1"],
        id="an escaped path of tmpfiles.d",
    ),
    pytest.param(
        service('"/usr/bin/nvidia-smi" "-pl" "500"'),
        POWER,
        ["unit site.service (/etc/systemd/system/site.service:3)"],
        id="quoted words",
    ),
    pytest.param(
        {
            **service("/bin/true"),
            "/run/systemd/generator.early/site.service": SMI,
        },
        POWER,
        ["unit site.service (/run/systemd/generator.early/site.service:2)"],
        id="generator.early comes before /etc",
    ),
    pytest.param(
        {
            UNITS[:-1] + ".control/train.service.d/50-AllowedCPUs.conf": (
                "[Service]\nAllowedCPUs=0-3\n"
            )
        },
        BINDING,
        ["/etc/systemd/system.control/train.service.d/50-AllowedCPUs.conf:2"],
        id="systemctl set-property",
    ),
]


@pytest.mark.parametrize(("files", "resource", "named"), UNSEEN)
def test_r14_a_manager_in_an_unusual_spelling_or_folder_is_found(
    tree: Callable[[dict[str, str]], Path], files: dict[str, str], resource: str, named: list[str]
) -> None:
    assert managers_of(resource, tree(files)) == named


def test_r14_an_executable_text_file_without_a_shebang_is_a_script(
    tree: Callable[[dict[str, str]], Path],
) -> None:
    root = tree({"/etc/cron.d/x": "@reboot root /opt/cap\n", "/opt/cap": f"{CAP}\n"})
    assert managers_of(POWER, root) == []  # data, as far as anybody can tell
    (root / "opt/cap").chmod(0o755)
    assert managers_of(POWER, root) == ["/opt/cap:1"]
    (root / "opt/cap").write_bytes(b"\x7fELF\0\n" + CAP.encode())
    assert managers_of(POWER, root) == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_r14_the_search_path_is_systemds_own() -> None:
    """Where /lib is /usr/lib, its two names are one folder, and either may come first."""
    words = ["systemd-analyze", "unit-paths"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
    ours, theirs = (
        [path for path in paths if not path.startswith("/lib/")]
        for paths in (UNIT_PATH, told.split())
    )
    assert ours == [path for path in theirs if path.startswith(("/etc/", "/run/", "/usr/"))]


def test_r14_scripts_that_call_one_another_do_not_loop(
    tree: Callable[[dict[str, str]], Path],
) -> None:
    files = {f"/opt/s{n}": f"#!/bin/sh\n/opt/s{(n + 1) % 3}\n" for n in range(3)}
    assert managers_of(POWER, tree({"/etc/rc.local": "#!/bin/sh\n/opt/s0\n", **files})) == []


def test_r14_more_scripts_than_are_looked_into_are_reported(
    tree: Callable[[dict[str, str]], Path],
) -> None:
    calls = "".join(f"/opt/s{n}\n" for n in range(100))
    files = {f"/opt/s{n}": "#!/bin/sh\n" for n in range(100)}
    files["/opt/all"] = f"#!/bin/sh\n{calls}"
    found = managers_of(POWER, tree({"/etc/cron.d/x": "@reboot root /opt/all\n", **files}))
    assert found and all(
        each.endswith("too many scripts are called to read all of them") for each in found
    )


FREE = [
    ({"/etc/sysctl.d/90-dpdk.conf": "vm.nr_hugepages = 16\n"}, PAGES.format(1048576)),
    (service("/usr/bin/cpupower frequency-set -g performance"), HIGHEST),
    (service("/usr/lib/cpupower $START", "cpupower.service"), HIGHEST),
    ({"/etc/default/cpufrequtils": 'MAX_SPEED="0"\n'}, HIGHEST),
    ({**TUNED, BASE: "[cpu]\ngovernor=performance\nmin_perf_pct=100\n"}, HIGHEST),
    ({**TUNED, BASE: "[cpu]\ngovernor=performance\n"}, LATENCY),
    (
        {"/etc/tmpfiles.d/nodevet-cpu-governor.conf": f"w {CPUS}/cpufreq/policy0/scaling_governor"},
        GOVERNOR,
    ),
    ({"/etc/sysctl.d/90-nodevet-sysctl.conf": "vm.swappiness=1"}, SWAPPINESS),
    ({"/usr/lib/sysctl.d/50-vendor.conf": "vm.swappiness=1"}, SWAPPINESS),
    ({"/etc/sysctl.d/50-site.conf": "#vm.swappiness=1\nvm.swappiness_x=1"}, SWAPPINESS),
    ({"/etc/sysctl.d/50-site.txt": "vm.swappiness=1"}, SWAPPINESS),
    (service("/usr/bin/nvidia-smi -pl 500", "nodevet-power-limit.service"), POWER),
    (service("/usr/bin/nvidia-smi -pl 500", enabled=False), POWER),
    ({**service("/usr/bin/nvidia-smi -pl 500"), UNITS + "site.service": "-> /dev/null"}, POWER),
    (service("/usr/bin/nvidia-smi -pm 1"), POWER),
    (service("/usr/bin/nvidia-smi dmon -c 1"), COMPUTE),
    (service("/usr/bin/nvidia-smi --query-gpu=power.limit --format=csv"), POWER),
    (service("/usr/bin/dcgmi config --get"), POWER),
    (service("/usr/bin/nv-hostengine -n", "nvidia-dcgm.service"), POWER),
    (
        {**TUNED, BASE: "[vm]\n#governor=x\n"},
        GOVERNOR,
    ),
    ({key: text for key, text in TUNED.items() if not key.startswith(WANTS)}, GOVERNOR),
    ({"/sys/module/nouveau/x": "", "/etc/modprobe.d/site.conf": "blacklist nouveau\n"}, NOUVEAU),
    ({"/etc/modprobe.d/site.conf": "blacklist nouveau2\noptions nouveau x=1\n"}, NOUVEAU),
    ({"/etc/cron.d/x": "@daily root systemctl start nvidia-persistenced-helper"}, PERSISTENCE),
    (service("systemctl stop x", "nvidia-persistenced.service"), PERSISTENCE),
    (
        {
            UNITS + "train.service.d/nodevet-numa-binding.conf": "[Service]\nCPUAffinity=0-3\n",
            UNITS + "train.service.d/env.conf": "[Service]\nEnvironment=A=1\n",
        },
        BINDING,
    ),
    (
        {"/etc/apt/preferences.d/nvidia": "Package: nvidia-driver-550-open\n"},
        "package nvidia-driver-550",
    ),
    (
        {"/etc/apt/preferences.d/cuda-600": "Package: *\nPin: release l=CUDA\nPin-Priority: 600\n"},
        "package nvidia-driver-550",
    ),
    (  # the daemon and its drop-in are the owner
        {
            WANTS + PERSISTENCED: f"-> {VENDOR}{PERSISTENCED}",
            VENDOR + PERSISTENCED: "[Service]\nExecStart=/usr/bin/nvidia-persistenced --verbose\n",
            UNITS + PERSISTENCED + ".d/90-nodevet-persistence-mode.conf": PM,
        },
        "gpu GPU-1:persistence_mode",
    ),
    (
        {UNITS + PERSISTENCED + ".d/site.conf": "[Service]\nCPUAffinity=0-3\n"},
        f"file {UNITS}{PERSISTENCED}.d/90-nodevet-persistence-mode.conf",
    ),
    (  # a drop-in that empties it takes it away
        {
            WANTS + "site.service": "-> ../site.service",
            UNITS + "site.service": "[Service]\nExecStart=/bin/x\nExecStartPost=nvidia-smi -pl 5\n",
            UNITS + "site.service.d/off.conf": "[Service]\nExecStartPost=\n",
        },
        POWER,
    ),
    (  # of equal names the first drop-in counts
        {
            **service("/bin/true"),
            "/usr/lib/systemd/system/site.service.d/a.conf": PM.replace("-pm 1", "-pl 1"),
            UNITS + "site.service.d/a.conf": "[Service]\n",
        },
        POWER,
    ),
    (  # what a command writes to is not what it runs
        {
            "/etc/cron.d/x": "@daily root sh /opt/a >> /var/log/a 2>/var/log/b\n",
            "/var/log/a": "#!/bin/sh\nnvidia-smi -pl 500\n",
            "/var/log/b": "nvidia-smi -pl 500\n",
        },
        POWER,
    ),
    (
        {
            **service("nvidia-smi -pl 5", enabled=False),
            UNITS + "nightly.timer": "[Timer]\nUnit=site.service\n",
        },
        POWER,
    ),
    ({"/etc/cron.d/x": "nouveau"}, "file /etc/modprobe.d/nodevet-nouveau.conf"),
    ({}, "gpu GPU-1:no_such_field"),
]


@pytest.mark.parametrize(("files", "resource"), FREE)
def test_a_program_that_does_not_set_the_resource_is_not_its_manager(
    tree: Callable[[dict[str, str]], Path], files: dict[str, str], resource: str
) -> None:
    if files.get(UNITS + "site.service", "").startswith("-> "):
        files = {
            "/usr/lib/systemd/system/site.service": "[Service]\nExecStart=nvidia-smi -pl 5\n",
            **files,
        }
    assert managers_of(resource, tree(files)) == []


def test_managers_of_several_resources_are_reported_in_their_order(
    ask: Callable[..., Any], tree: Callable[[dict[str, str]], Path]
) -> None:
    root = tree(
        {"/etc/tmpfiles.d/x.conf": "w /sys/devices/system/cpu/cpufreq/*/energy_x - - - - 1"}
    )
    policies = [
        f"kernel /sys/devices/system/cpu/cpufreq/policy{number}/energy_x" for number in (0, 1)
    ]
    found = ask("managers", *policies, SWAPPINESS, root=root)
    assert found == [["/etc/tmpfiles.d/x.conf:1"], ["/etc/tmpfiles.d/x.conf:1"], []]


def test_a_long_line_and_odd_bytes_hide_no_manager(ask: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "etc/cron.d").mkdir(parents=True)
    (tmp_path / "etc/cron.d/a").write_bytes(b"\xff\xfe'" * 90000 + b"\n")
    (tmp_path / "etc/cron.d/b").write_bytes(b"nvidia-smi -pl 5 '\xff\n")
    (tmp_path / "etc/cron.d/c").symlink_to("c")
    (found,) = ask("managers", POWER, root=tmp_path)
    assert found[0] == "/etc/cron.d/b:1"
    assert found[1:] == ["/etc/cron.d/c: cannot be read: ELOOP"]
