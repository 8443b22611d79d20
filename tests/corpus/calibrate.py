"""`make calibrate`: how often a diagnosis of the corpus was right, by class and confidence.

Judges the bundles of tests/corpus/bundles with the rules of this checkout, records nothing, and
writes the tables into docs/diagnosis.md.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.incident import read
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from nodevet.evidence.document import decode
from tests.corpus import calibrate_jobs
from tests.corpus.kind import BUNDLES, MACHINE, kind, parts

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- calibration -->", "<!-- end of calibration -->"
Z = 1.96  # 95 %, two-sided
TARGETS = {Confidence.HIGH: 95, Confidence.MEDIUM: 80}
BRIER = {Confidence.HIGH: 0.95, Confidence.MEDIUM: 0.8, Confidence.LOW: 0.5}


@dataclass(frozen=True)
class Judged:
    """One answer of the corpus, and the truth."""

    kind: str
    background: str
    seconds: int
    kept_out: bool
    label: str
    second: str
    action: str
    answer: str  # of a mixture all causes
    confidence: Confidence
    sentence: str

    @property
    def right(self) -> bool:
        return causes_of(self.answer) == causes_of(self.label)

    @property
    def second_best(self) -> bool:
        return not self.right and causes_of(self.answer) == causes_of(self.second)

    @property
    def cannot_tell(self) -> bool:
        return self.answer == Cause.UNCLEAR.value


def causes_of(text: str) -> frozenset[str]:
    return frozenset(text.split(" + "))


def busy_before() -> dict[str, float]:
    found: dict[str, float] = json.loads(MACHINE.read_text(encoding="utf-8"))
    return found


def judge(path: Path) -> Judged:
    """The diagnosis of GPU 0 in a bundle."""
    name, background, seconds = parts(path)
    known = kind(name)
    label, second = known.labels(background, busy_before().get(path.name, 0.0))
    ((visit, _),) = read(path)
    assert visit.evidence is not None, f"{path}: no evidence"
    gpus = diagnose(decode(visit.evidence))
    assert not isinstance(gpus, str), f"{path}: {gpus}"
    gpu = gpus[0]
    return Judged(
        kind=name,
        background=background,
        seconds=seconds,
        kept_out=known.kept_out,
        label=label,
        second=second,
        action=known.action,
        answer=answer_of(gpu),
        confidence=gpu.confidence,
        sentence=gpu.sentence,
    )


def answer_of(gpu: GpuDiagnosis) -> str:
    mixed = gpu.cause is Cause.MIXED
    return " + ".join(cause.value for cause in gpu.causes) if mixed else gpu.cause.value


def wilson(right: int, cases: int) -> tuple[float, float]:
    """The interval of a share, in percent, at 95 %.

    >>> [round(bound) for bound in wilson(73, 73)], [round(bound) for bound in wilson(16, 16)]
    ([95, 100], [81, 100])
    """
    share, z2 = right / cases, Z * Z / cases
    middle = (share + z2 / 2) / (1 + z2)
    half = Z / (1 + z2) * sqrt(share * (1 - share) / cases + z2 / 4 / cases)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def as_cases(judged: Iterable[Judged]) -> list[Judged]:
    """One for each kind, background, answer and confidence: lengths of one load are no new cases.
    The worst counts."""
    by_case: dict[tuple[str, str, str, Confidence], Judged] = {}
    for each in sorted(judged, key=lambda each: each.right):
        by_case.setdefault((each.kind, each.background, each.answer, each.confidence), each)
    return list(by_case.values())


def row(name: str, cases: Sequence[Judged]) -> str:
    cells = [name, *cells_of(cases), *cells_of([case for case in cases if case.kept_out])]
    return "| " + " | ".join(cells) + " |"


def cells_of(cases: Sequence[Judged]) -> tuple[str, ...]:
    right = sum(case.right for case in cases)
    second = sum(case.second_best for case in cases)
    if not cases:
        return ("0", "", "", "")
    low, high = wilson(right, len(cases))
    return f"{len(cases)}", f"{right}", f"{second}", f"{low:.0f}-{high:.0f} %"


HEADS = ("cases", "right", "second best", "95 % interval")


def tables(judged: Sequence[Judged]) -> str:
    """The section of docs/diagnosis.md."""
    cases = as_cases(judged)
    kinds = {case.kind for case in judged}
    held = sorted({case.kind for case in judged if case.kept_out})
    heads = ("answer", *HEADS, *(f"{head}, kept out" for head in HEADS))
    lines = [
        f"The corpus has {len(kinds)} kinds of load, {len(judged)} recordings of them and "
        f"{len(cases)} different cases (kind, background, answer).",
        f"Kept out of tuning, {len(held)} kinds: {', '.join(f'`{name}`' for name in held)}.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for confidence in Confidence:
        answered = [
            case for case in cases if case.confidence is confidence and not case.cannot_tell
        ]
        target = TARGETS.get(confidence)
        aim = f" (aim {target} %)" if target else ""
        lines.append(row(f"**all {confidence.value}**{aim}", answered))
        for answer in sorted({case.answer for case in answered}):
            of_answer = [case for case in answered if case.answer == answer]
            lines.append(row(f"{answer}, {confidence.value}", of_answer))
    lines.append(row(Cause.UNCLEAR.value, [case for case in cases if case.cannot_tell]))
    score = sum((BRIER[case.confidence] - case.right) ** 2 for case in cases) / len(cases)
    misses = [case for case in cases if is_confident_miss(case)]
    lines += [
        "",
        f"Brier score {score:.2f}, with high as 0.95, medium as 0.8 and low as 0.5. Confident "
        f"answers that are neither right nor second best: {len(misses)}.",
    ]
    if misses:
        lines += ["", "| load | background | it says | right is | to do |", "|---|---|---|---|---|"]
        lines += sorted(
            f"| `{case.kind}` | {case.background} | {case.answer}, {case.confidence.value} "
            f"| {case.label} | {case.action} |"
            for case in misses
        )
    return "\n".join(lines)


def is_confident_miss(case: Judged) -> bool:
    sure = case.confidence is not Confidence.LOW and not case.cannot_tell
    return sure and not case.right and not case.second_best


def page(text: str, section: str, begin: str = BEGIN, end: str = END) -> str:
    """docs/diagnosis.md with this section."""
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    assert pattern.search(text), f"{PAGE}: {begin} is missing"
    return pattern.sub(lambda _: f"{begin}\n{section}\n{end}", text)


def judge_all() -> list[Judged]:
    return [judge(path) for path in sorted(BUNDLES.glob("*.json.gz"))]


def main() -> None:
    section, of_jobs = tables(judge_all()), calibrate_jobs.tables(calibrate_jobs.judge_all())
    text = page(PAGE.read_text(encoding="utf-8"), section)
    text = page(text, of_jobs, calibrate_jobs.BEGIN, calibrate_jobs.END)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{section}\n\n{of_jobs}\n")


if __name__ == "__main__":
    main()
