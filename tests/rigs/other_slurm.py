"""The Slurm of another Debian, beside the one of this machine: 24.11 of trixie, which
`.ci/other-slurm` has unpacked. NODEVET_SLURM_ROOT names another root to take it from.

Each program runs in a mount namespace of its own, where the programs and libraries of that Debian
lie over those of this machine. So do the hooks and the jobs that slurmd starts.
"""

import os
import shutil
import subprocess
from pathlib import Path

NAMED = os.environ.get("NODEVET_SLURM_ROOT", "")
ROOT = Path(NAMED or "/var/cache/nodevet/slurm-trixie")
NAMES = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "srun", "scancel")
PROGRAM = """#!/bin/sh
exec unshare -m --propagation private sh -ec '
mount -t overlay -o ro,lowerdir={root}/usr:/usr other-slurm /usr
mount --bind {root}/{plugins} /{plugins}
exec $(PATH=/usr/sbin:/usr/bin; command -v {name}) "$@"' {name} "$@"
"""


def missing() -> str:
    """Why it cannot run here; "" if it can."""
    if not ROOT.exists():
        return f"no {ROOT}"
    overlay = ("mount", "-t", "overlay", "-o", f"ro,lowerdir={ROOT}/usr:/usr", "x", "/usr")
    done = subprocess.run(["unshare", "-m", *overlay], capture_output=True, text=True)
    return done.stderr.strip()


def write_programs(folder: Path) -> None:
    """Write its programs for a PATH."""
    plugins = next(ROOT.glob("usr/lib/*/slurm-wlm")).relative_to(ROOT)  # no mixture of versions
    for name in NAMES:
        program = folder / name
        program.write_text(PROGRAM.format(root=ROOT, name=name, plugins=plugins))
        program.chmod(0o755)


def copy_to_node(root: Path) -> None:
    """Put it below the root of a simulated node, with its programs in /usr/local/bin."""
    shutil.copytree(ROOT, root / ROOT.relative_to("/"), symlinks=True, dirs_exist_ok=True)
    write_programs(root / "usr/local/bin")
