"""Checks a mode of every GPU, now and after its next reset: ECC, MIG."""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.checking.one_value import usual
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Value,
    compare,
    fail,
    not_applicable,
)

SET = "set, takes effect at the next GPU reset or reboot"
LATER = "pending: takes effect at the next GPU reset or reboot"
OTHER_BOARD = "no setting changes this: see gpu_model, and check that the baseline is for this GPU"


class OnOrOff(CheckParams):
    """The expected mode: `true` or `false`."""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def gpu_mode(
    params: type[OnOrOff], *, current: str, pending: str, lacking: str, unasked: str
) -> Check:
    """The check of a mode. A change that is pending fails, whichever of the two is expected.

    `current`, `pending`: fields of evidence.gpu.Gpu, of type bool | None. `lacking`: the reason for
    a GPU without the mode, which fails only if the mode is expected on.
    """

    def judge(evidence: Evidence, params: OnOrOff) -> Iterator[Finding]:
        for gpu in each_gpu(evidence):
            if isinstance(gpu, Finding):
                yield gpu
            elif unsupported(gpu, current):
                yield judge_unsupported(gpu, params.enabled)
            else:
                yield from judge_gpu(gpu, params.enabled)

    def judge_unsupported(gpu: Gpu, expected: bool) -> Finding:
        subject = subject_of(gpu)
        if not expected:
            return not_applicable(subject, why=lacking)
        return fail(subject, expected=True, actual="not supported", why=lacking, advice=OTHER_BOARD)

    def judge_gpu(gpu: Gpu, expected: bool) -> Iterator[Finding]:
        """One finding if both modes are equal, else one for each mode that is not as expected."""
        subject = subject_of(gpu)
        now: bool | None = getattr(gpu, current)
        pending_mode: bool | None = getattr(gpu, pending)
        if now is pending_mode is not None:
            yield compare(subject, expected=expected, actual=now)
            return
        if now is None:
            yield unread(subject, gpu, current)
        elif now is not expected:
            why = SET if pending_mode is expected else ""
            yield fail(subject, expected={"now": expected}, actual={"now": now}, why=why)
        if pending_mode is None:
            yield unread(subject, gpu, pending)
        elif pending_mode is not expected:
            yield fail(
                subject, expected={"pending": expected}, actual={"pending": pending_mode}, why=LATER
            )

    def learn(evidence: Evidence) -> Value:
        return usual(getattr(gpu, current) for gpu in answering_gpus(evidence))

    return Check(
        params=params,
        area=Area.GPU,
        reads=(*IN_HAND, f"gpu.gpus[].{current}", f"gpu.gpus[].{pending}"),
        judge=judge,
        unasked=unasked,
        learn=learn,
        actions={OTHER_BOARD: NeededAction.SITE},
    )
