"""The node is in an expected Slurm state, with all its GPUs.

**Why it matters.** A repaired node that was drained for a fault stays out of use until someone
resumes it. If a node lost a GPU and nobody corrected its gres.conf, it gets jobs for GPUs that it
does not have.

**Read from** `scontrol show node -o`, with a deadline, for the node's short host name or for
`node`. Every node asks the controller: do not use this check in frequent sweeps.

**Verdicts.** Every part of the state must be allowed: IDLE+DRAIN fails unless `allow` has drain.
DOWN* is down and not responding. The number of GPUs must equal NVML's. It is not judged if CfgTRES
has no gres/gpu; with MIG, Slurm counts MIG devices, so set `gpus: false`. The check does not know
what Kubernetes can allocate.

**To fix it** fix the fault in `Reason`, then `scontrol update nodename=NODE state=resume`.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.checking.nvml_count import as_nvml_counts
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.slurm import Slurm, SlurmNode, states_of
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

SELF = "self"
State = Annotated[str, Meta(pattern=r"^[a-z_]{2,40}$")]


class Params(CheckParams):
    """`slurm_node: {}` or `slurm_node: {allow: [idle, mixed, allocated], node: gpu-07}`"""

    allow: Annotated[tuple[State, ...], Meta(min_length=1)] = (
        "idle",
        "mixed",
        "allocated",
        "completing",
        "planned",
        "reserved",
    )
    """Allowed states, in lower case as sinfo prints them."""
    node: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,250}$")] = SELF
    """The NodeName, if it is not the short host name."""
    gpus: bool = True
    """Whether Slurm must have as many GPUs as NVML."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Slurm]
    listed = (section.data.nodes if section.data else None) or ()
    node = next((listed_node for listed_node in listed if listed_node.name == params.node), None)
    if section.data is None:
        yield unknown(why=f"Slurm: {section.why}")
    elif section.data.nodes is None:
        yield unread(Subject(), section.data, "nodes")
    elif node is None:
        yield unknown(why=NOT_ASKED, advice=READ_AGAIN)
    else:
        yield judge_state(node, params)
        if params.gpus and node.gpus != 0:
            subject = Subject(kind="slurm", id="GPUs")
            yield as_nvml_counts(evidence, subject, node, advice=GRES)


def judge_state(node: SlurmNode, params: Params) -> Finding:
    subject = Subject(kind="slurm", id="state")
    if node.state is None:
        return unread(subject, node, "state")
    states = states_of(node.state)
    expected = " or ".join(params.allow)
    if all(state in params.allow for state in states):
        return ok(subject, expected=expected, actual=node.state)
    why = f"Reason={node.reason}" if node.reason else ""
    return fail(subject, expected=expected, actual=node.state, why=why, advice=RESUME)


RESUME = "fix the fault in Reason, then `scontrol update nodename=NODE state=resume`"
GRES = "correct gres.conf and slurm.conf, or find the missing GPU: see gpu_count"


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=("gpu.count", *reads_of("slurm.nodes[]", "gpus", "name", "state")),
    judge=judge,
    severity=Severity.WARNING,
    asks=lambda params: {"slurm": (params.node,)},
    unasked="every node asks Slurm's controller: write slurm_node: {} if it can carry this load",
    learn=lambda evidence: None,
)
