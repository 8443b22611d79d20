"""From series and counters to the figures that rules ask for: GPU, job and host together."""

from collections.abc import Mapping

from nodevet.diagnose.gpu_figures import gpu_figures
from nodevet.diagnose.host_figures import host_figures
from nodevet.diagnose.job_figures import job_figures
from nodevet.diagnose.model import Figure
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity


def figures(evidence: Evidence, gpu: GpuActivity) -> Mapping[str, Figure]:
    """Every figure of one GPU, by name."""
    found = (
        *gpu_figures(evidence, gpu),
        *job_figures(evidence, gpu),
        *host_figures(evidence),
    )
    return {figure.name: figure for figure in found}
