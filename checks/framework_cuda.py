"""PyTorch in the named interpreter sees CUDA and every GPU.

**Why it matters.** A wheel built for CPUs, a CUDA version that the driver does not support or a
library that is not found makes torch.cuda.is_available() False: jobs run on the CPU, slowly and
without an error.

**Read from** the interpreter that `python` names. nodevet runs it isolated (`-I`) and with a
deadline; if nodevet is root, it runs as `user`, `nobody` by default: name a user if /dev/nvidia* is
not open to everyone. The interpreter imports torch and asks for the number of devices. It allocates
no GPU memory, so it does not prove that the GPUs compute. The baseline must allow commands
(`allow_commands: true`).

**Verdicts.** The number of devices must equal NVML's: with MIG say `every_gpu: false`. `version`
and `cuda` are prefixes: `2.4` allows 2.4.1+cu124. An interpreter that cannot import torch fails. An
interpreter that does not exist, or takes too long, is unknown.

**To fix it** install the wheel for a CUDA version that the driver supports (`cuda_version` shows
it); `python -c 'import torch; torch.zeros(1).cuda()'` prints the error that is_available() hides.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.framework import Frameworks, Interpreter
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.versions import is_version
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, unknown

Version = Annotated[str, Meta(pattern=r"^[0-9][0-9A-Za-z.+]{0,60}$")]


class Params(CheckParams):
    """`framework_cuda: /opt/venv/bin/python` or
    `framework_cuda: {python: /opt/venv/bin/python, version: "2.4", cuda: "12.4"}`"""

    bare: ClassVar[str] = "python"

    python: Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._/@+-]{1,240}$")]
    """The interpreter's path."""
    user: Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")] | None = None
    """The user that runs the interpreter if nodevet is root; `nobody` by default."""
    version: Version | None = None
    """The expected prefix of torch's version."""
    cuda: Version | None = None
    """The expected prefix of torch's CUDA version."""
    every_gpu: bool = True
    """Whether torch must see as many devices as NVML counts GPUs."""

    @property
    def name(self) -> str:
        """The name that the probe's answer has."""
        return f"{self.user}:{self.python}" if self.user else self.python


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Frameworks]
    subject = Subject(kind="python", id=params.python)
    interpreters = (section.data.interpreters if section.data else None) or ()
    interpreter = next(
        (
            listed_interpreter
            for listed_interpreter in interpreters
            if listed_interpreter.name == params.name
        ),
        None,
    )
    if section.data is None:
        yield unknown(subject, why=f"framework: {section.why}")
    elif section.data.interpreters is None:
        yield unread(subject, section.data, "interpreters")
    elif interpreter is None:
        yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
    else:
        yield from judge_interpreter(evidence, interpreter, params, subject)


def judge_interpreter(
    evidence: Evidence, interpreter: Interpreter, params: Params, subject: Subject
) -> Iterator[Finding]:
    if interpreter.failed is None:
        yield unread(subject, interpreter, "failed")
    elif interpreter.failed:
        yield fail(subject, expected="torch", actual=interpreter.failed, advice=INSTALL)
    else:
        aspects = [*versions(interpreter, params), availability(interpreter)]
        if params.every_gpu and interpreter.available is not False:
            aspects.append(devices(evidence, interpreter))
        yield from aspect_findings(subject, aspects)


def versions(interpreter: Interpreter, params: Params) -> Iterator[Aspect]:
    for name, field, prefix in (
        ("torch", "version", params.version),
        ("CUDA", "cuda", params.cuda),
    ):
        actual = getattr(interpreter, field)
        if prefix and actual is None:
            yield unread_aspect(interpreter, field)
        elif prefix:
            right, shown = is_version(actual, prefix), actual or "none"
            yield aspect_if(name, right, expected=f"{prefix}*", actual=shown, advice=INSTALL)


def availability(interpreter: Interpreter) -> Aspect:
    """What torch.cuda.is_available() says."""
    if interpreter.available is None:
        return unread_aspect(interpreter, "available")
    actual = "available" if interpreter.available else "not available"
    right = interpreter.available
    aspect = aspect_if("torch.cuda", right, expected="available", actual=actual, advice=INSTALL)
    cpu_only = not right and interpreter.cuda == ""
    return aspect._replace(why="this torch is built for CPUs" if cpu_only else "")


def devices(evidence: Evidence, interpreter: Interpreter) -> Aspect:
    nvml = evidence[Gpus]
    if interpreter.devices is None:
        return unread_aspect(interpreter, "devices")
    if nvml.data is None:
        return unknown_aspect("devices", f"NVML: {nvml.why}")
    if nvml.data.count is None:
        return unread_aspect(nvml.data, "count")
    right, expected = interpreter.devices == nvml.data.count, nvml.data.count
    aspect = aspect_if(
        "devices", right, expected=expected, actual=interpreter.devices, advice=HIDDEN
    )
    why = "" if right else "compares the devices that torch sees with the GPUs that NVML counts"
    return aspect._replace(why=why)


INSTALL = "install a torch whose CUDA the driver supports into this interpreter; see the page"
HIDDEN = "see gpu_lost and environment: a GPU that CUDA does not initialise hides the GPUs after it"


def runs(params: Params) -> tuple[str, ...]:
    return (f"{params.python} -I -c 'import torch; ...' (as {params.user or 'nobody'})",)


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        *reads_of("framework.interpreters[]", "available", "cuda", "devices", "failed", "name"),
        "framework.interpreters[].version",
        "gpu.count",
    ),
    judge=judge,
    unasked="it runs a site's own Python: name the interpreter, and allow commands",
    asks=lambda params: {"framework": (params.name,)},
    runs=runs,
)
