"""Keep every GPU's driver state loaded, or not, as the baseline says, now and at every boot.

**Now** `nvidia-smi -i UUID -pm 1` (or `-pm 0`) for each GPU that is wrong. Where
nvidia-persistenced runs, nvidia-smi hands the wish to it.

**At every boot** the unit `nodevet-persistence-mode.service` does the same for every GPU of the
node, after nvidia-persistenced, before the other GPU settings and before slurmd and the
kubelet. It is needed beside the daemon: as some distributions pack it, the daemon starts with
`--no-persistence-mode`. Whether the daemon itself is enabled and runs is the part of `services`.

**Risk** live: jobs go on.

**Undo** puts the old mode back, and takes the unit away or puts the earlier one back.

**What it cannot do.** Switched off, an idle GPU forgets its power limit, its clocks and its
compute mode at once; the plan says so. A later start of nvidia-persistenced by hand switches
it on again. A node with a GPU that does not answer is refused whole, as the unit must speak
of all.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.persistence_mode import PersistenceMode
from nodevet.evidence import Evidence, unsupported
from nodevet.fix import Change, Fix, Risk
from nodevet.fixes import _boot_unit as boot_unit
from nodevet.fixes import _gpus as gpus
from nodevet.fixes._operation import Commands, operation, perform
from nodevet.model import Finding

LOSES = "a GPU forgets its power limit, clocks and compute mode when its last client leaves"


def plan(
    evidence: Evidence, findings: Sequence[Finding], want: PersistenceMode
) -> Iterator[Change]:
    """One change of all GPUs that are wrong; see `FIX`."""
    every, wrong = gpus.among(evidence, findings)
    if not wrong:
        return
    yield gpus.change(
        wrong,
        told=lambda _: [words(want.enabled)],
        fields=lambda _: ["persistence_mode"],
        risk=Risk.LIVE,
        owner="persistence_mode",
        boot=[
            (each.uuid, words(want.enabled))
            for each in every
            if not unsupported(each.gpu, "persistence_mode")
        ],
        note="" if want.enabled else LOSES,
    )


def words(enabled: bool) -> tuple[str, ...]:
    return ("-pm", "1" if enabled else "0")


@operation
def persistence_mode(enabled: Mapping[str, bool]) -> Commands:
    """In a pyinfra deploy: `persistence_mode({"GPU-...": True, ...})`, every GPU of the host."""
    settings = [(gpu, words(on)) for gpu, on in enabled.items()]
    yield from perform(boot_unit.deployed("persistence_mode", settings))


FIX = Fix(plan=plan, risk=Risk.LIVE)
