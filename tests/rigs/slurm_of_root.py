"""Slurm's programs of another Debian, by which the tests of Slurm run: NODEVET_SLURM_ROOT.

    mmdebstrap --variant=apt --include=slurmctld,slurmd,slurm-client trixie ROOT
    NODEVET_SLURM_ROOT=ROOT pytest tests/slurm

has Slurm 24.11. Each program runs in a mount namespace of its own, with this machine's /tmp.
"""

import os
from pathlib import Path

ROOT = os.environ.get("NODEVET_SLURM_ROOT", "")
NAMES = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "srun", "scancel")
PROGRAM = """#!/bin/sh
exec unshare -m --propagation private sh -c '
for name in tmp proc dev sys; do mount --rbind /$name {root}/$name; done
PATH=/usr/sbin:/usr/bin exec chroot {root} {name} "$@"' {name} "$@"
"""


def programs(folder: Path) -> str:
    """PATH with these programs first; empty: this machine's own are used."""
    if not ROOT:
        return ""
    for name in NAMES:
        program = folder / name
        program.write_text(PROGRAM.format(root=ROOT, name=name))
        program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
