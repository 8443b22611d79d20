"""A mode that every GPU has now, and a pending one from its next reset on: ECC, MIG."""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.checking.learning import usual
from nodevet.evidence.across import IN_HAND, answering, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Value, compare, fail, not_applicable

OTHER_BOARD = "no setting changes this: see gpu_model, and check that the baseline is for this GPU"


class OnOrOff(CheckParams):
    """What a baseline says of such a mode: `true` or `false`."""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def gpu_mode(params: type[OnOrOff], *, current: str, pending: str, lacking: str) -> Check:
    """The check of a mode. A change that is pending fails, whichever of the two is expected.

    `current`, `pending`: fields of evidence.gpu.Gpu, of type bool | None.
    `lacking`: a sentence about a GPU without the mode, which fails only if it is expected on.
    """

    def judge(evidence: Evidence, params: OnOrOff) -> Iterator[Finding]:
        for gpu in each_gpu(evidence):
            yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params.enabled)

    def judge_gpu(gpu: Gpu, expected: bool) -> Finding:
        subject = subject_of(gpu)
        now: bool | None = getattr(gpu, current)
        then: bool | None = getattr(gpu, pending)
        if unsupported(gpu, current):
            if not expected:
                return not_applicable(subject, why=lacking)
            return fail(
                subject, expected=True, actual="not supported", why=lacking, advice=OTHER_BOARD
            )
        if now is None:
            return unread(subject, gpu, current)
        if now is not expected:
            why = "set, takes effect at the next GPU reset or reboot" if then is expected else ""
            return compare(subject, expected=expected, actual=now, why=why)
        if then is None:
            return unread(subject, gpu, pending)
        if then is not expected:
            why = "pending: takes effect at the next GPU reset or reboot"
            return fail(subject, expected=expected, actual=then, why=why)
        return compare(subject, expected=expected, actual=now)

    def learn(evidence: Evidence) -> Value:
        return usual(getattr(gpu, current) for gpu in answering(evidence))

    return Check(
        params=params,
        area=Area.GPU,
        reads=(*IN_HAND, f"gpu.gpus[].{current}", f"gpu.gpus[].{pending}"),
        judge=judge,
        learn=learn,
    )
