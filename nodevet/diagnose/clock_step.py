"""What to do about a clock that a setting holds, by that setting. Pure."""

from collections.abc import Mapping

from nodevet.diagnose.gpu_figures import APPLICATION, LOCKED, SYNC_BOOST
from nodevet.diagnose.model import Figure

RESET = (
    "unless the site set it, reset it: nvidia-smi {flag} -i BUS_ID; without -i this acts on every "
    "GPU, and a service or a job's prolog may set it again"
)
STEPS = {
    LOCKED: RESET.format(flag="-rgc"),
    APPLICATION: RESET.format(flag="-rac"),
    SYNC_BOOST: "look at the slowest GPU of its sync boost group, which sets the clocks of all: "
    "nvidia-smi -q -d CLOCK,PERFORMANCE shows those of every GPU",
}


def clock_step(figures_by_name: Mapping[str, Figure]) -> str:
    """The advice for the setting that `held_clock` names; empty if it names none, or one that can
    have several origins."""
    note = figures_by_name["held_clock"].note
    return next((step for setting, step in STEPS.items() if note.startswith(setting)), "")
