"""The texts of a diagnosis that all formats share. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.printable import brief, plain
from nodevet.diagnose.late_ranks import are_waiting, common_cause
from nodevet.diagnose.late_ranks import label as rank_label
from nodevet.diagnose.model import (
    FINE,
    Cause,
    Condition,
    Confidence,
    Diagnosis,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    Job,
    JobDiagnosis,
    MissingGpu,
    Ruling,
)
from nodevet.diagnose.owners import owner_text
from nodevet.diagnose.suspects import LOOKS, MOST, SuspectLine, can_slow, rank_suspects
from nodevet.diagnose.words import PROOF, figure_text, number, value_text
from nodevet.evidence.lists import spans
from nodevet.sheet.text import count, name

PROOF_HEADS = ("what", "value", "of what")


def alike(gpus: Sequence[GpuDiagnosis]) -> list[list[GpuDiagnosis]]:
    """Groups of GPUs whose texts are the same; the lost ones come first."""
    groups: dict[tuple[object, ...], list[GpuDiagnosis]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.cause is not Cause.LOST):
        key = (gpu.cause, gpu.causes, gpu.confidence, gpu.sentence, gpu.also)
        groups.setdefault(key, []).append(gpu)
    return list(groups.values())


def label(group: Sequence[GpuDiagnosis]) -> str:
    """`GPU 3`, `GPUs 0-2,5`."""
    return ("GPU " if len(group) == 1 else "GPUs ") + spans(gpu.index for gpu in group)


def cause_text(gpu: GpuDiagnosis) -> str:
    """`storage-bound`; of a mixture all of its causes."""
    mixed = gpu.cause is Cause.MIXED
    return " + ".join(one_cause.value for one_cause in gpu.causes) if mixed else gpu.cause.value


def claim(gpu: GpuDiagnosis) -> str:
    """What a GPU waits for, without the proof. A diagnosis of an earlier nodevet has only the whole
    sentence."""
    return gpu.claim or gpu.sentence


def proof_rows(gpu: GpuDiagnosis) -> Iterator[tuple[str, str]]:
    """Each fact that proves a cause, what speaks against it, and what a change would bring."""
    shown: set[str] = set()
    for proof in gpu.proofs:
        label = proof.cause.value if len(gpu.proofs) > 1 else "seen"
        yield from ((label, fact) for fact in proof.facts if fact not in shown)
        yield from (("but", doubt) for doubt in proof.doubts)
        shown.update(proof.facts)
    if gpu.gain:
        yield "what if", gpu.gain


def folded(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The rows, without each label that the row above already has."""
    above = ""
    for label_text, text in rows:
        yield "" if label_text == above else label_text, text
        above = label_text


def next_text(group: Sequence[GpuDiagnosis]) -> str:
    """The next step, with the number of the GPU and the process in its commands if there is only
    one."""
    gpu, step = group[0], group[0].next_step
    if len(group) > 1:
        return step
    if len(gpu.jobs) == 1:
        step = step.replace("PID", str(gpu.jobs[0].pid))
    slurm = {job.owner.job.removeprefix("Slurm ") for job in gpu.jobs if job.owner.job}
    number = slurm.pop() if len(slurm) == 1 else ""
    if number.isdigit():
        step = step.replace("--job JOB", f"--job {number}")
    return step.replace("-i BUS_ID", f"-i {gpu.id}")


def steps(text: str) -> list[str]:
    """The single steps of a next step."""
    return text.split("; ")


def job_text(job: Job) -> str:
    """`python 4711, 19.5 GiB of GPU memory, 4 helper processes`."""
    helpers = f", {count(job.helpers, 'helper process')}" if job.helpers else ""
    memory = f", {job.memory_b / 2**30:.1f} GiB of GPU memory" if job.memory_b else ""
    return f"{plain(job.command) or '?'} {job.pid}{memory}{helpers}"


MOST_OWNERS = 4


def owner_texts(group: Sequence[GpuDiagnosis]) -> list[str]:
    """Who owns the jobs of these GPUs; with the processes of each if there are several owners."""
    names: dict[str, list[str]] = {}
    for job in [job for gpu in group for job in gpu.jobs]:
        names.setdefault(owner_text(job.owner), []).append(f"{job.command or '?'} {job.pid}")
    if len(names) < 2:
        return list(filter(None, names))
    listed = [
        f"{text or 'not known'}: {', '.join(own[:MOST_OWNERS])}"
        f"{f' and {len(own) - MOST_OWNERS} more' * (len(own) > MOST_OWNERS)}"
        for text, own in names.items()
    ]
    more = len(listed) - MOST_OWNERS
    return [*listed[:MOST_OWNERS], *([f"and {count(more, 'more owner')}"] if more > 0 else [])]


def watched_text(host: HostDiagnosis) -> str:
    """`watched for 30 s, which took 0.8 % of one core: login 0.02 s, start 0.2 s, looks 0.1 s`."""
    text = f"watched for {number(host.seconds)} s"
    if host.overhead is None:
        return text
    parts = (("login", host.login_s), ("start", host.rest_s), ("looks", host.looks_s))
    texts = [f"{part} {number(seconds)} s" for part, seconds in parts if seconds is not None]
    listed = f": {', '.join(texts)}" if host.rest_s is not None else ""
    return f"{text}, which took {number(host.overhead)} % of one core{listed}"


def no_diagnosis(host: HostDiagnosis) -> str:
    """Why a host has no diagnosis."""
    return plain(host.why) or host.status.value.replace("_", " ")


def proof_figures(gpu: GpuDiagnosis) -> list[Figure]:
    """The figures that prove its causes, each once."""
    causes = gpu.causes or (gpu.cause,)
    names = dict.fromkeys(
        figure_name for cause_ in causes for figure_name in PROOF.get(cause_, ("sm_busy",))
    )
    by_name = {figure.name: figure for figure in gpu.figures}
    return [
        by_name[figure_name]
        for figure_name in names
        if figure_name in by_name and by_name[figure_name].value is not None
    ]


def ruling_state(ruling: Ruling) -> str:
    return {True: "holds", False: "does not hold", None: "undecided"}[ruling.holds]


def margin(ruling: Ruling) -> str:
    """The margin by which a rule holds or not; empty if it is unknown, or if a count decides."""
    beyond = ruling.holds is False and (ruling.margin or 0) >= 1
    return "" if ruling.margin is None or beyond else number(ruling.margin)


def ruling_text(ruling: Ruling) -> str:
    """A rule and the figures it was compared with: `[holds 1.4] storage-bound: …`."""
    by = f" by {margin(ruling)}" if margin(ruling) else ""
    conditions = "; ".join(map(condition_text, ruling.conditions))
    return f"[{ruling_state(ruling)}{by}] {ruling.cause.value}: {ruling.rule}: {conditions}"


def condition_text(condition: Condition) -> str:
    """`SM busy 20 % (at most 85)`."""
    side = "at least" if condition.at_least else "at most"
    return f"{figure_text(condition.figure)} ({side} {number(condition.threshold)})"


def unread(gpus: Iterable[GpuDiagnosis]) -> list[tuple[str, str, str]]:
    """(why, GPUs, figures) that could not be read; equal entries of several GPUs are merged."""
    by_gpu: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for gpu in gpus:
        by_why: dict[str, list[str]] = {}
        for figure in gpu.figures:
            if figure.value is None:
                by_why.setdefault(plain(figure.why) or "not known", []).append(figure.what)
        for why, names in by_why.items():
            by_gpu.setdefault((why, tuple(names)), []).append(gpu.index)
    return [
        (why, f"GPU{'s' if len(places) > 1 else ''} {spans(places)}", ", ".join(names))
        for (why, names), places in by_gpu.items()
    ]


def suspects(host: HostDiagnosis) -> tuple[list[SuspectLine], str]:
    """The likeliest suspects, and a hint to the others: `and 3 more: nodevet check gpu007`."""
    listed = [suspect for suspect in host.suspects if can_slow(suspect, host.gpus)]
    lines = rank_suspects(listed, host.gpus)
    hidden = len(lines) - MOST
    harmless = host.others + len(host.suspects) - len(listed)
    others = count(harmless, "difference") if harmless else ""
    slow = "slows" if harmless == 1 else "slow"
    texts = [
        f"{hidden} more" if hidden > 0 else "",
        f"{others} that {slow} no GPU" if others else "",
    ]
    parts = [text for text in texts if text]
    rest = f"and {' and '.join(parts)}: nodevet check {name(host.host)}" if parts else ""
    return lines[:MOST], rest if lines else ""


def fix(host: HostDiagnosis, line: SuspectLine) -> str:
    """The command that plans the fix of a suspect, or that shows more; empty if there is none."""
    if line.fixable:
        return f"nodevet plan --fix {line.check} {name(host.host)}  # changes nothing"
    return LOOKS.get(line.check, "") if line.likely else ""


def missing_label(gpu: MissingGpu) -> str:
    """`GPU at 0000:41:00.0`, `3 GPUs`."""
    return f"GPU at {gpu.bus_id}" if gpu.bus_id else count(gpu.count, "GPU")


def headline(incident: Diagnosis) -> str:
    """`3 of 8 GPUs: storage-bound or stuck`, `No GPU waits`; of a job, which rank is late. Missing
    GPUs come first."""
    text = job_headline(incident.job) if incident.job else _headline(incident)
    if not incident.missing:
        return text
    watched = sum(len(host.gpus) for host in incident.hosts)
    where = [host.host for host in incident.hosts if host.missing]
    of = "" if incident.job else f" of {watched + incident.missing:,}"
    on = f" on {brief(name(where[0]))}" if len(where) == 1 else ""
    noun = "GPU" if (watched + incident.missing if of else incident.missing) == 1 else "GPUs"
    verb = "is" if incident.missing == 1 else "are"
    return f"{incident.missing:,}{of} {noun} {verb} missing{on} · {text}"


def _headline(incident: Diagnosis) -> str:
    gpus = [gpu for host in incident.hosts for gpu in host.gpus]
    if not gpus:
        return "No GPU could be watched"
    other = "other " if incident.missing else ""
    bad = sum(gpu.cause not in (*FINE, Cause.UNCLEAR) for gpu in gpus)
    unclear = sum(gpu.cause is Cause.UNCLEAR for gpu in gpus)
    if bad:
        listed = [gpu for gpu in gpus if gpu.cause not in (*FINE, Cause.UNCLEAR)]
        perhaps = "perhaps " if all(gpu.confidence is Confidence.LOW for gpu in listed) else ""
        if len(gpus) == 1:
            return f"1 GPU: {perhaps}{cause_text(gpus[0])}"
        causes = dict.fromkeys(gpu.cause for gpu in listed)
        causes_text = cause_list(causes) if len(causes) < 3 else "held up"
        return f"{bad:,} of {count(len(gpus), 'GPU')}: {perhaps}{causes_text}"
    if unclear:
        return f"{unclear:,} of {count(len(gpus), 'GPU')}: the cause is not clear"
    idle = sum(gpu.cause in (Cause.IDLE, Cause.REQUESTS) for gpu in gpus)
    if idle == len(gpus):
        asking = [gpu for gpu in gpus if gpu.cause is Cause.REQUESTS]
        verb = "may wait" if any(gpu.is_doubtful for gpu in asking) else "waits"
        asked = f" or {verb} for requests" if asking else ""
        return f"{'Every' if idle > 1 else 'The'} {other}GPU is idle{asked}"
    return f"No {other}GPU waits" if len(gpus) > 1 else f"The {other}GPU does not wait"


def job_headline(job: JobDiagnosis) -> str:
    late = job.late_ranks
    if job.mismatch:
        who = "its ranks call different collectives"
    elif not late and (cause := common_cause(job.ranks)):
        who = f"all {len(job.ranks)} ranks are {cause.value}"
    elif not late:
        who = f"no rank {'' if job.is_whole else 'that was seen '}is late"
    elif are_waiting(late, job.ranks):
        seem = "seem to " * (job.confidence is Confidence.LOW)
        who = f"the others {seem}wait for {rank_label(late)}"
    else:
        who = f"{rank_label(late)} may hold up the others"
    return f"Job {brief(job.name)}: {who}"


def cause_list(causes: Iterable[Cause]) -> str:
    return " or ".join(item.value for item in causes)


def closing(incident: Diagnosis) -> str:
    """The number of GPUs for each cause."""
    return " · ".join(_closing(incident))


def _closing(incident: Diagnosis) -> Iterator[str]:
    gpus = [gpu for host in incident.hosts for gpu in host.gpus]
    yield f"{count(len(gpus), 'GPU')} on {count(len(incident.hosts), 'host')}"
    if incident.missing:
        yield f"{incident.missing:,} missing"
    counts = {cause_text: sum(gpu.cause is cause_text for gpu in gpus) for cause_text in Cause}
    yield from (
        f"{number_of_gpus} {cause_text.value}"
        for cause_text, number_of_gpus in counts.items()
        if number_of_gpus
    )
    if lost := sum(not host.gpus for host in incident.hosts):
        yield f"{count(lost, 'host')} without a diagnosis"
    if incident.apart_s is not None:
        yield f"started within {incident.apart_s:.1f} s of one another"
    if incident.interrupted:
        yield "interrupted"


def proof_row(figure: Figure) -> tuple[str, str, str]:
    """As PROOF_HEADS say."""
    return plain(figure.what), plain(value_text(figure)), plain(figure.note)
