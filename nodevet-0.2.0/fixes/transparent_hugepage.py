"""Set transparent huge pages as expected, now and at every boot.

**Now** one write to /sys/kernel/mm/transparent_hugepage/enabled, and to defrag, if it fails. If the
baseline accepts several words, the fix writes the first.

**At every boot** `/etc/tmpfiles.d/nodevet-transparent-hugepage.conf` writes the same words; see
tmpfiles.d(5), `w`. It is the only manager of the setting; tuned conflicts, and the rule overrides
`transparent_hugepage=` on the kernel's command line.

**Risk** live: memory in use stays as it is, and later allocations follow the new setting.

**Rollback** restores both words and the rule.

**What it cannot do.** Running programs keep their pages. The kernel refuses a word that it does not
offer, so the write fails.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.transparent_hugepage import FIELDS, Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.fixing import kernel_files
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions

RULE = "/etc/tmpfiles.d/nodevet-transparent-hugepage.conf"
FOLDER = "/sys/kernel/mm/transparent_hugepage"


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change for all settings that fail; see `FIX`."""
    failed = {f.subject.id: f for f in findings}
    memory = evidence[Memory].data
    rule: dict[str, str] = {}
    for field in FIELDS:
        words = getattr(params, field)
        actual = getattr(memory, f"thp_{field}", None)
        if actual is None and field in failed:
            raise FixError(f"{field}: nodevet could not read it")
        if field in failed and actual != failed[field].actual:
            raise FixError(f"{field}: the finding does not come from this evidence")
        if words is None:
            continue
        if actual is None and len(words) > 1:
            raise FixError(
                f"{field}: nodevet could not read it, but the rule needs a value for it too"
            )
        if len(words) == 1 or actual not in words[1:]:
            rule[field] = words[0]
    if not set(failed) <= set(rule):
        raise FixError("the findings do not come from this evidence")
    words_now = {field: rule[field] for field in failed}
    yield kernel_files.change(failed, words_now, actions(rule, words_now))


def actions(rule: dict[str, str], words_now: dict[str, str]) -> Actions:
    """`rule`: the words to write at every boot; `words_now`: the words to write now; by file."""
    lines = [kernel_files.rule(f"{FOLDER}/{field}", word) for field, word in rule.items()]
    return kernel_files.actions(
        RULE, lines, {f"{FOLDER}/{field}": words_now[field] for field in words_now}
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("cpu_governor",))
