"""PyTorch of a named interpreter sees CUDA, and every GPU.

**Why it matters.** A wheel built for CPUs, a CUDA that the driver does not support or a library
that is not found make torch.cuda.is_available() False: jobs run on the CPU, slowly and without an
error.

**Read from** the interpreter that `python` names, which is run isolated (`-I`) with a deadline; if
nodevet is root, as `user` or nobody: name a user where not everyone may open /dev/nvidia*. It
imports torch and asks for the number of devices; no memory of a GPU is used, so that nothing is
said of whether they compute. The baseline must allow commands (`allow_commands: true`).

**Verdicts.** The number of devices must be NVML's: with MIG say `every_gpu: false`. `version` and
`cuda` are prefixes: `2.4` admits 2.4.1+cu124. An interpreter that cannot import torch fails; one
that is not there, or takes too long, is unknown.

**To fix it** install the wheel of a CUDA that the driver supports (`cuda_version` says which);
`python -c 'import torch; torch.zeros(1).cuda()'` prints the error that is_available() hides.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.framework import Frameworks, Interpreter
from nodevet.evidence.gpu import Gpus
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

Version = Annotated[str, Meta(pattern=r"^[0-9][0-9A-Za-z.+]{0,60}$")]


class Params(CheckParams):
    """`framework_cuda: /opt/venv/bin/python` or
    `framework_cuda: {python: /opt/venv/bin/python, version: "2.4", cuda: "12.4"}`"""

    bare: ClassVar[str] = "python"

    python: Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._/@+-]{1,240}$")]
    """The interpreter's path."""
    user: Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")] | None = None
    """As whom root runs it; nobody, if none is named."""
    version: Version | None = None
    """What torch's version begins with."""
    cuda: Version | None = None
    """What the version of its CUDA begins with."""
    every_gpu: bool = True
    """Whether torch must see as many devices as NVML counts GPUs."""

    @property
    def name(self) -> str:
        """As the probe is asked for it."""
        return f"{self.user}:{self.python}" if self.user else self.python


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Frameworks]
    subject = Subject(kind="python", id=params.python)
    listed = (section.data.interpreters if section.data else None) or ()
    found = next((each for each in listed if each.name == params.name), None)
    if section.data is None:
        yield unknown(subject, why=f"framework: {section.why}")
    elif section.data.interpreters is None:
        yield unread(subject, section.data, "interpreters")
    elif found is None:
        yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
    else:
        yield judge_interpreter(evidence, found, params, subject)


def judge_interpreter(
    evidence: Evidence, found: Interpreter, params: Params, subject: Subject
) -> Finding:
    if found.failed is None:
        return unread(subject, found, "failed")
    if found.failed:
        return fail(subject, expected="torch", actual=found.failed[:200], advice=INSTALL)
    for field in ("version", "cuda", "available", "devices"):
        if getattr(found, field) is None:
            return unread(subject, found, field)
    wanted = {"torch": params.version, "CUDA": params.cuda}
    actual = {"torch": found.version or "", "CUDA": found.cuda or "none"}
    bad = [name for name, begins in wanted.items() if begins and not fits(actual[name], begins)]
    if bad:
        return fail(
            subject,
            expected={name: f"{wanted[name]}*" for name in bad},
            actual={name: actual[name] for name in bad},
            advice=INSTALL,
        )
    if not found.available:
        why = "" if found.cuda else "this torch is built for CPUs"
        return fail(
            subject, expected="CUDA available", actual="not available", why=why, advice=INSTALL
        )
    if not params.every_gpu:
        return ok(subject, expected="CUDA available", actual="available")
    return judge_devices(evidence, found, subject)


def fits(version: str, begins: str) -> bool:
    """Whether a version begins so, at a whole part.

    >>> fits("2.4.1+cu124", "2.4"), fits("2.40.1", "2.4")
    (True, False)
    """
    rest = version[len(begins) :]
    return version.startswith(begins) and not rest[:1].isdigit()


def judge_devices(evidence: Evidence, found: Interpreter, subject: Subject) -> Finding:
    nvml = evidence[Gpus]
    if nvml.data is None:
        return unknown(subject, why=f"NVML: {nvml.why}")
    if nvml.data.count is None:
        return unread(subject, nvml.data, "count")
    if found.devices != nvml.data.count:
        return fail(
            subject,
            expected=nvml.data.count,
            actual=found.devices,
            why="devices that torch sees, and GPUs that NVML counts",
            advice=HIDDEN,
        )
    return ok(subject, expected=nvml.data.count, actual=found.devices)


INSTALL = "install a torch whose CUDA the driver supports into this interpreter; see the page"
HIDDEN = "see gpu_lost and environment: a GPU that CUDA does not initialise hides those after it"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"framework": (params.name,)}


def runs(params: Params) -> tuple[str, ...]:
    return (f"{params.python} -I -c 'import torch; ...' (as {params.user or 'nobody'})",)


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "framework.interpreters[].available",
        "framework.interpreters[].cuda",
        "framework.interpreters[].devices",
        "framework.interpreters[].failed",
        "framework.interpreters[].name",
        "framework.interpreters[].version",
        "gpu.count",
    ),
    judge=judge,
    asks=asks,
    runs=runs,
)
