"""Containers can get the node's GPUs: NVIDIA's toolkit, CDI specifications, container engines.

**Why it matters.** A container without its GPU runs on the CPU, or fails to start with
"unresolvable CDI devices". A CDI specification names the device nodes and library files that
existed when it was written. After a driver update, or with another GPU, it is stale until it is
written again.

**Read from** /etc/cdi and /var/run/cdi, /etc/docker/daemon.json, the configurations of containerd
(k3s, RKE2), with the files that they import, and of CRI-O, the hooks of Podman and Enroot,
/etc/nvidia-container-runtime/config.toml, and the installed programs of the toolkit. nodevet asks
no engine and runs no container, so it does not notice that an engine has not reloaded its
configuration.

**Verdicts.** A program of the toolkit must be installed. Every NVIDIA specification must name files
that exist and the loaded driver's libcuda.so. A specification of nvidia.com/gpu without MIG must
name the GPUs by the indexes and UUIDs that NVML reports. Each engine in `engines` must offer GPUs
in at least one way: a runtime whose program exists, CDI with a specification, or a hook.
`default_runtime` names the engines whose default must be NVIDIA's runtime. `cdi: true` requires a
specification of nvidia.com/gpu. The check `packages` judges the versions of packages.

**To fix it** `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` writes a specification again
(since toolkit 1.18, nvidia-cdi-refresh.service does this by itself). `nvidia-ctk runtime configure
--runtime=docker` (or `containerd`, `crio`) configures an engine; restart the engine afterwards.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import first_unread
from nodevet.evidence.across import IN_HAND, unlisted_gpus_finding
from nodevet.evidence.containers import CdiSpecification, Containers, Engine
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.modules import Modules
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

GPU_KIND = "nvidia.com/gpu"
INDEX = re.compile(r"(?:gpu)?([0-9]{1,4})")
NEEDS_CDI = ("cdi",)

EngineName = Literal["docker", "containerd", "crio", "podman", "enroot", "k3s", "rke2"]
EngineNames = tuple[EngineName, ...]


class Params(CheckParams):
    """`container_runtime: {}` or `container_runtime: {engines: [docker], cdi: true}` or
    `container_runtime: {engines: [containerd], default_runtime: [containerd]}`"""

    engines: EngineNames = ()
    """Engines that must offer GPUs to containers."""
    default_runtime: EngineNames = ()
    """Engines whose default must be NVIDIA's runtime."""
    cdi: bool = False
    """Whether there must be a specification of nvidia.com/gpu."""
    toolkit: bool = True
    """Whether NVIDIA's toolkit must be installed."""


@of_section(Containers, "containers")
def judge(containers: Containers, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if params.toolkit:
        yield judge_toolkit(containers)
    yield from judge_specifications(evidence, containers, params)
    engines = {engine.name: engine for engine in containers.engines or ()}
    for name in dict.fromkeys((*params.engines, *params.default_runtime)):
        subject = Subject(kind="runtime", id=name)
        if containers.engines is None:
            yield unread(subject, containers, "engines")
        elif name not in engines:
            yield fail(subject, expected="installed", actual="not installed", advice=INSTALL)
        else:
            yield from judge_engine(
                subject, engines[name], containers, name in params.default_runtime
            )


def judge_toolkit(containers: Containers) -> Finding:
    subject = Subject(kind="runtime", id="nvidia-container-toolkit")
    if containers.toolkit is None:
        return unread(subject, containers, "toolkit")
    if not containers.toolkit:
        return fail(subject, expected="installed", actual="not installed", advice=TOOLKIT)
    return ok(subject, expected="installed", actual=containers.toolkit)


def judge_specifications(
    evidence: Evidence, containers: Containers, params: Params
) -> Iterator[Finding]:
    subject = Subject(kind="cdi", id=GPU_KIND)
    if containers.specifications is None:
        yield unread(subject, containers, "specifications")
        return
    for spec in containers.specifications:
        yield from judge_specification(evidence, spec)
    unlisted_finding = unlisted_gpus_finding(evidence)
    if unlisted_finding is not None and any(
        spec.kind == GPU_KIND for spec in containers.specifications
    ):
        yield unlisted_finding
    if containers.mode is None:
        yield unread(subject, containers, "mode")
    if not (params.cdi or containers.mode in NEEDS_CDI):
        return
    kinds = [spec.kind for spec in containers.specifications]
    if GPU_KIND in kinds:
        yield ok(subject, expected="a specification", actual="there")
    elif None in kinds:
        yield unknown(subject, why="the kind of a specification was not read")
    else:
        why = (
            ""
            if params.cdi
            else f"nvidia-container-runtime is configured with mode {containers.mode}"
        )
        yield fail(subject, expected="a specification", actual="none", why=why, advice=GENERATE)


def judge_specification(evidence: Evidence, spec: CdiSpecification) -> Iterator[Finding]:
    """The findings about its paths, the version of its driver and its GPUs."""
    subject = Subject(kind="cdi", id=spec.path)
    fine = ok(subject, expected="paths that exist", actual="all there")
    facts = (
        *judge_paths(spec, subject, fine),
        judge_driver(evidence, spec, subject, fine),
        judge_devices(evidence, spec, subject, fine),
    )
    yield from each_fact(facts)


def judge_paths(spec: CdiSpecification, subject: Subject, fine: Finding) -> Iterator[Finding]:
    examples = [path for path in spec.examples or () if path]
    if spec.missing is None:
        yield unread(subject, spec, "missing")
    elif spec.missing:
        actual = f"not there: {', '.join(examples) or spec.missing}"
        yield fail(subject, expected="paths that exist", actual=actual, advice=GENERATE)
        if len(examples) != spec.missing:
            yield unknown(subject, why=f"{len(examples)} of {spec.missing} missing paths were read")
    else:
        yield fine


def judge_driver(
    evidence: Evidence, spec: CdiSpecification, subject: Subject, fine: Finding
) -> Finding:
    modules = evidence[Modules]
    if spec.driver_version is None:
        return unread(subject, spec, "driver_version")
    if not spec.driver_version:
        return fine
    if modules.data is None:
        return unknown(subject, why=f"modules: {modules.why}")
    loaded = modules.data.nvidia_version
    if loaded is None and modules.data.errors.get("nvidia_version") != "ENOENT":
        return unread(subject, modules.data, "nvidia_version")
    if loaded in (None, spec.driver_version):
        return fine
    actual = f"driver {spec.driver_version}"
    return fail(subject, expected=f"driver {loaded}", actual=actual, advice=GENERATE)


def judge_devices(
    evidence: Evidence, spec: CdiSpecification, subject: Subject, fine: Finding
) -> Finding:
    nvml = evidence[Gpus]
    if finding := first_unread(subject, spec, "kind", "devices"):
        return finding
    if spec.kind != GPU_KIND:
        return fine
    if nvml.data is None:
        return unknown(subject, why=f"NVML: {nvml.why}")
    if nvml.data.gpus is None:
        return unread(subject, nvml.data, "gpus")
    unread_gpu = next((gpu for gpu in nvml.data.gpus if is_mig_unread(gpu)), None)
    if unread_gpu:
        return unread(subject, unread_gpu, "mig_current")
    names = spec.devices or ()
    has_mig = any(gpu.mig_current for gpu in nvml.data.gpus) or any(map(is_mig, names))
    if has_mig or not any(INDEX.fullmatch(name) or name.startswith("GPU-") for name in names):
        return fine
    named_indexes = {int(match[1]) for match in map(INDEX.fullmatch, names) if match}
    named_uuids = {name for name in names if name.startswith("GPU-")}
    indexes = {gpu.index for gpu in nvml.data.gpus}
    nvml_uuids = {gpu.uuid for gpu in nvml.data.gpus if gpu.uuid}
    unlisted_finding = unlisted_gpus_finding(evidence)
    differences = []
    if named_indexes and named_indexes != indexes:
        differences.append((gpus_text(indexes), gpus_text(named_indexes)))
    if named_uuids and len(nvml_uuids) < len(indexes):
        return unknown(subject, why="NVML does not report the UUID of every GPU")
    if named_uuids and named_uuids != nvml_uuids:
        sides = (("not there", named_uuids - nvml_uuids), ("not in it", nvml_uuids - named_uuids))
        texts = [
            f"{word}: {', '.join(sorted(uuids_shown)) or 'none'}" for word, uuids_shown in sides
        ]
        differences.append(("the GPUs that are there", "; ".join(texts)))
    if differences and unlisted_finding is not None:
        return unknown(subject, why=unlisted_finding.why)
    if differences:
        expected, actual = ("; ".join(side) for side in zip(*differences, strict=True))
        return fail(subject, expected=expected, actual=actual, advice=GENERATE)
    return ok(subject, expected=gpus_text(indexes), actual=gpus_text(indexes))


def is_mig_unread(gpu: Gpu) -> bool:
    return gpu.mig_current is None and not unsupported(gpu, "mig_current")


def is_mig(name: str) -> bool:
    return name.startswith(("MIG-", "mig")) or re.fullmatch(r"[0-9]+:[0-9]+", name) is not None


def gpus_text(indices: set[int]) -> str:
    return f"GPU {', '.join(map(str, sorted(indices)))}" if indices else "no GPU"


def judge_engine(
    subject: Subject, engine: Engine, containers: Containers, must_be_default: bool
) -> Iterator[Finding]:
    for field in ("runtime", "default_runtime", "program_exists", "cdi", "hook"):
        if getattr(engine, field) is None:
            yield unread(subject, engine, field)
            return
    facts = [judge_offer(subject, engine, containers)]
    if engine.runtime and not engine.program_exists:
        expected = "a runtime whose program exists"
        actual = f"{engine.program or 'no program'}: not there"
        facts.insert(0, fail(subject, expected=expected, actual=actual, advice=TOOLKIT))
    if must_be_default and not engine.default_runtime:
        actual = "not the default" if engine.runtime else "no such runtime"
        default = fail(subject, expected="default runtime nvidia", actual=actual, advice=CONFIGURE)
        facts.insert(0, default)
    yield from each_fact(facts)


def judge_offer(subject: Subject, engine: Engine, containers: Containers) -> Finding:
    kinds = [spec.kind for spec in containers.specifications or ()]
    ways = {
        "runtime nvidia": engine.runtime and engine.program_exists,
        "CDI": engine.cdi and GPU_KIND in kinds,
        "hook": engine.hook,
    }
    offers = [way for way, is_offered in ways.items() if is_offered]
    if offers:
        return ok(subject, expected="offers GPUs", actual=", ".join(offers))
    if engine.cdi and containers.specifications is None:
        return unread(subject, containers, "specifications")
    actual = "without its program" if engine.runtime else "not configured"
    return fail(subject, expected="offers GPUs", actual=actual, advice=CONFIGURE)


def learn(evidence: Evidence) -> Any:
    containers = evidence[Containers].data
    if containers is None or not containers.toolkit or containers.engines is None:
        return None
    specs = containers.specifications or ()
    verdicts = [
        (engine, next(judge_engine(Subject(), engine, containers, False)).verdict.value)
        for engine in containers.engines
    ]
    params: dict[str, Any] = {
        "engines": [engine.name for engine, verdict in verdicts if verdict == "ok"],
        "default_runtime": [engine.name for engine in containers.engines if engine.default_runtime],
        "cdi": any(spec.kind == GPU_KIND for spec in specs),
    }
    return {key: value for key, value in params.items() if value}


INSTALL = "install it, or remove it from the baseline's `engines`"
TOOLKIT = "install nvidia-container-toolkit"
GENERATE = (
    "write it again: `nvidia-ctk cdi generate --output=FILE`, or `systemctl restart "
    "nvidia-cdi-refresh` if the toolkit has that service"
)
CONFIGURE = "`nvidia-ctk runtime configure --runtime=ENGINE`, then restart the engine"

CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        *IN_HAND,
        *reads_of("containers.engines[]", "cdi", "default_runtime", "hook", "name"),
        *reads_of("containers.engines[]", "program_exists", "runtime"),
        "containers.mode",
        *reads_of("containers.specifications[]", "devices[]", "driver_version", "examples[]"),
        *reads_of("containers.specifications[]", "kind", "missing"),
        "containers.toolkit",
        *reads_of("gpu.gpus[]", "index", "mig_current", "uuid"),
        "modules.nvidia_version",
    ),
    judge=judge,
    unasked="for nodes that run containers: say container_runtime: {} for them",
    learn=learn,
)
