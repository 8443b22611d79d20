"""How often a diagnosis of the jobs of tests/corpus/jobs named the right rank and its cause."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.incident import read_bundle
from nodevet.diagnose.model import Cause, Confidence, Diagnosis, HostDiagnosis, Rank, RankState
from nodevet.diagnose.use import Observations, incident
from nodevet.evidence.document import decode
from nodevet.model import Status
from tests.corpus.job import BUNDLES, is_kept_out, job

STARTED = datetime(2026, 11, 30).astimezone()
NO_RANK = "no rank"
OF_BACKGROUND = {"loaded": Cause.STARVED.value}
"""What a background does to every rank; to name it beside the cause of the late rank is right."""
BEGIN, END = "<!-- calibration of jobs -->", "<!-- end of calibration of jobs -->"


@dataclass(frozen=True)
class JudgedJob:
    """One answer about a job, and the truth."""

    kind: str
    background: str
    kept_out: bool
    late: frozenset[int | None]
    cause: str
    second: str
    none_is_fine: bool
    action: str
    answer: frozenset[int | None]
    answer_cause: str  # of all late ranks, in the order of their names
    confidence: Confidence
    sentence: str

    @property
    def right_rank(self) -> bool:
        return self.answer == self.late

    @property
    def right(self) -> bool:
        """The rank, and why it is late."""
        named = set(self.answer_cause.split(" + "))
        own = named - {OF_BACKGROUND.get(self.background, "")} or named
        return self.right_rank and own <= {self.cause, self.second or self.cause}

    @property
    def is_confident_miss(self) -> bool:
        """That the cause of the right rank is not clear misleads no reader."""
        unclear = self.right_rank and self.answer_cause == Cause.UNCLEAR.value
        harmless = unclear or (self.none_is_fine and not self.answer)
        return self.confidence is not Confidence.LOW and not self.right and not harmless


def diagnosis_of(path: Path) -> Diagnosis:
    visits, target = read_bundle(path)
    assert target is not None, f"{path}: no job"
    observations, hosts = Observations(target), []
    for visit, host in visits:
        assert visit.evidence is not None, f"{path}: no evidence"
        evidence = decode(visit.evidence)
        gpus = diagnose(evidence)
        assert not isinstance(gpus, str), f"{path}: {gpus}"
        hosts.append(HostDiagnosis(host=host.name, status=Status.VETTED, gpus=gpus, seconds=6.0))
        observations.record(evidence, hosts[-1])
    return incident(hosts, seconds=6.0, started=STARTED, observations=observations)


def cause_of(rank: Rank, found: Diagnosis) -> str:
    """The state of a rank that does not run or computes; else its cause, or all of a mixture."""
    if rank.state not in (RankState.HELD_UP, RankState.QUIET) or rank.cause is None:
        return rank.state.value
    causes = {
        cause.value
        for host in found.hosts
        for gpu in host.gpus
        if host.host == rank.host and gpu.index in rank.gpus
        for cause in gpu.causes
    }
    return " + ".join(sorted(causes)) or rank.cause.value


def judge(path: Path) -> JudgedJob:
    name, background = path.name.removesuffix(".json.gz").split(".")
    known, whole = job(name), diagnosis_of(path)
    found = whole.job
    assert found is not None
    return JudgedJob(
        kind=name,
        background=background,
        kept_out=is_kept_out(name),
        late=known.late,
        cause=known.cause,
        second=known.second,
        none_is_fine=known.none_is_fine,
        action=known.action,
        answer=frozenset(rank.number for rank in found.late_ranks),
        answer_cause=" + ".join(sorted({cause_of(rank, whole) for rank in found.late_ranks})),
        confidence=found.confidence,
        sentence=found.sentence,
    )


def judge_all() -> list[JudgedJob]:
    return [judge(path) for path in sorted(BUNDLES.glob("*.json.gz"))]


def ranks_text(numbers: Iterable[int | None]) -> str:
    listed = sorted(str(number) for number in numbers)
    return ", ".join(listed) or NO_RANK


def row(name: str, cases: Sequence[JudgedJob]) -> str:
    cells = [name]
    for chosen in (cases, [case for case in cases if case.kept_out]):
        ranks, both = sum(case.right_rank for case in chosen), sum(case.right for case in chosen)
        cells += [str(len(chosen)), str(ranks) if chosen else "", str(both) if chosen else ""]
    return "| " + " | ".join(cells) + " |"


HEADS = ("recordings", "right rank", "right rank and cause")


def tables(judged: Sequence[JudgedJob]) -> str:
    """The second section of docs/diagnosis.md."""
    held = sorted({case.kind for case in judged if case.kept_out})
    heads = ("answer", *HEADS, *(f"{head}, kept out" for head in HEADS))
    lines = [
        f"{len({case.kind for case in judged})} kinds of jobs, {len(judged)} recordings. Kept out "
        f"of tuning, {len(held)} kinds: {', '.join(f'`{name}`' for name in held)}.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for confidence in Confidence:
        of_it = [case for case in judged if case.confidence is confidence]
        lines.append(row(f"**all {confidence.value}**", of_it))
        for is_late, text in ((True, "a rank is late"), (False, "no rank is late")):
            chosen = [case for case in of_it if bool(case.answer) is is_late]
            lines.append(row(f"{text}, {confidence.value}", chosen))
    misses = [case for case in judged if not case.right]
    sure = sum(case.is_confident_miss for case in misses)
    lines += ["", f"Confident answers that are wrong: {sure}."]
    if misses:
        lines += ["", "| job | background | it says | right is | to do |", "|---|---|---|---|---|"]
        lines += [
            f"| `{case.kind}` | {case.background} "
            f"| {ranks_text(case.answer)}: {case.answer_cause or 'nothing'}, "
            f"{case.confidence.value} | {ranks_text(case.late)}: {case.cause or 'nothing'} "
            f"| {case.action} |"
            for case in misses
        ]
    return "\n".join(lines)
