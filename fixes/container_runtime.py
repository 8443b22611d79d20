"""Configure NVIDIA's runtime in a container engine, and write a stale CDI specification again.

**Now** for Docker or containerd, nodevet runs `nvidia-ctk runtime configure`, with
`--set-as-default` if the baseline expects that, and restarts the engine if it runs.

For a stale CDI specification in /etc/cdi, it runs `nvidia-ctk cdi generate`; a missing
specification goes to /etc/cdi/nvidia.yaml. Nodes with toolkit 1.18 or later have
nvidia-cdi-refresh.service: if the specification is in /var/run/cdi or missing there, nodevet
restarts that service instead. So no second specification names the same GPUs.

`nvidia-ctk` writes in place. On a full disk it would leave half a file, so the step fails before it
runs unless 256 KiB are free.

**At every boot** the engine reads its configuration, and nvidia-cdi-refresh.service writes
/var/run/cdi. If that service is disabled, the fix enables it.

**Risk** drain for an engine: its restart may end containers. live for a specification: only
containers that start later read it.

**Rollback** restores the engine's files and restarts the engine. Empty folders that `nvidia-ctk`
created stay. It restores the earlier specification in /etc/cdi. A specification that
nvidia-cdi-refresh wrote stays, because it describes the node as it is.

**What it cannot do.** It installs neither the toolkit nor an engine. It does not use the toolkit of
the GPU operator, which configures its engine itself. A person must configure CRI-O, Podman, Enroot,
k3s and RKE2. containerd needs toolkit 1.18 or later, which writes a file of its own,
/etc/containerd/conf.d/99-nvidia.toml; an older toolkit refuses the command, and nothing changes. If
a specification names a GPU that the node does not show, a GPU may be lost: see `gpu_count`. Tests
use a stand-in for `nvidia-ctk` that writes what NVIDIA documents, and no real container engine.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.container_runtime import GPU_KIND, INDEX, Params
from nodevet.evidence.containers import CdiSpecification, Containers
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.fixing.room import require_room
from nodevet.fixing.units import OBSTACLES, STANDS, start_unit, unit_of
from nodevet.model import Finding, Subject
from nodevet.resource import Actions, Resource, RunCommand
from nodevet.resource.unit import SetUnit

REFRESH = "nvidia-cdi-refresh.service"
CTK = re.compile(r"/usr/(local/)?s?bin/nvidia-ctk")
OWN_SPEC = re.compile(r"/etc/cdi/[A-Za-z0-9_.-]{1,200}\.ya?ml")
SPEC = "/etc/cdi/nvidia.yaml"
FILES: Mapping[str, Mapping[str, str]] = {
    "docker": {"config": "/etc/docker/daemon.json"},
    "containerd": {
        "config": "/etc/containerd/config.toml",
        "drop-in-config": "/etc/containerd/conf.d/99-nvidia.toml",
    },
}
"""The files that nvidia-ctk writes for an engine, by the option that names each."""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for each engine and each specification; see `FIX`."""
    containers = evidence[Containers].data
    if containers is None or containers.toolkit is None:
        why = containers.why("toolkit") if containers else evidence[Containers].why
        raise FixError(f"NVIDIA's toolkit: {why}")
    if not CTK.fullmatch(containers.toolkit):
        raise FixError(
            f"{containers.toolkit} is not from a package: nodevet does not use it"
            if containers.toolkit
            else "nvidia-ctk is not on the node: install nvidia-container-toolkit"
        )
    changes, refused = [], []
    for subject in dict.fromkeys(finding.subject for finding in failed):
        findings = [finding for finding in failed if finding.subject == subject]
        try:
            changes.append(change(subject, findings, containers, evidence))
        except FixError as error:
            refused.append(f"{subject.label}: {error}")
    yield from with_refusals(changes, refused)


def change(
    subject: Subject, findings: Sequence[Finding], containers: Containers, evidence: Evidence
) -> PlannedChange:
    """The change of an engine or a specification. Raises FixError."""
    is_engine = subject.kind == "runtime"
    if is_engine:
        actions = configure(subject.id, findings, containers, evidence)
        files = [*FILES[subject.id].values()]
    else:
        path = spec_path(subject.id, containers, evidence)
        actions = generate(path, containers, evidence)
        files = [path] if isinstance(actions[0], RunCommand) else []
    return PlannedChange(
        expected=findings[0].expected,
        actual=findings[0].actual,
        subjects=(subject.label,),
        actions=actions,
        resources=(
            *(Resource(kind="file", name=file) for file in files),
            *(action.resource for action in actions if action.resource),
        ),
        risk=Risk.DRAIN if is_engine else Risk.LIVE,
        note="its restart may end containers" if is_engine else "",
    )


def configure(
    name: str, findings: Sequence[Finding], containers: Containers, evidence: Evidence
) -> Actions:
    """The actions that configure an engine and restart it if it runs. Raises FixError."""
    engine = next((each for each in containers.engines or () if each.name == name), None)
    if engine is None:
        raise FixError("it is not installed")
    if name not in FILES:
        raise FixError("nodevet configures only docker and containerd")
    if engine.runtime and not engine.program_exists:
        raise FixError("its runtime's program is missing: install nvidia-container-toolkit again")
    unit = unit_of(evidence, f"{name}.service")
    if unit.load_state != "loaded":
        raise FixError(f"{unit.name}: {OBSTACLES.get(unit.load_state or '', 'not loaded')}")
    if unit.active_state not in STANDS:
        raise FixError(f"{unit.name} is {unit.active_state}; plan again when it has finished")
    options = [f"--{option}={file}" for option, file in FILES[name].items()]
    if any(finding.expected == "default runtime nvidia" for finding in findings):
        options.append("--set-as-default")
    words = (containers.toolkit or "", "runtime", "configure", f"--runtime={name}", *options)
    return (
        require_room(FILES[name]["config"]),
        RunCommand(words=words),
        SetUnit(name=unit.name, restart=True),
    )


def spec_path(name: str, containers: Containers, evidence: Evidence) -> str:
    """The path of the specification to write; empty if nvidia-cdi-refresh writes it. Raises
    FixError."""
    has_refresh = unit_of(evidence, REFRESH).load_state == "loaded"
    if name == GPU_KIND:
        return "" if has_refresh else SPEC
    spec = next((each for each in containers.specifications or () if each.path == name), None)
    if spec is None or spec.kind != GPU_KIND:
        raise FixError(f"it is not of {GPU_KIND}: write it again with the program that wrote it")
    if lost := names_more(spec, evidence):
        raise FixError(f"it names {lost}, which the node does not show: see gpu_count")
    if OWN_SPEC.fullmatch(name):
        return name
    if name.startswith(("/var/run/cdi/", "/run/cdi/")) and has_refresh:
        return ""
    raise FixError(
        "nodevet writes only YAML in /etc/cdi: write it again with the program that wrote it"
    )


def names_more(spec: CdiSpecification, evidence: Evidence) -> str:
    """A device of a specification that NVML does not list; empty if there is none. Raises
    FixError."""
    gpus = evidence[Gpus].data
    if spec.devices is None or gpus is None or gpus.gpus is None:
        raise FixError("its devices or the GPUs were not read")
    names = {str(gpu.index) for gpu in gpus.gpus} | {gpu.uuid for gpu in gpus.gpus if gpu.uuid}
    for name in spec.devices:
        match = INDEX.fullmatch(name)
        if (match or name.startswith("GPU-")) and (match[1] if match else name) not in names:
            return f"GPU {name}"
    return ""


def generate(path: str, containers: Containers, evidence: Evidence) -> Actions:
    """The action that writes a specification. Raises FixError."""
    if not path:
        return (start_unit(unit_of(evidence, REFRESH)),)
    words = (containers.toolkit or "", "cdi", "generate", f"--output={path}")
    return require_room(path), RunCommand(words=words)


FIX = Fix(
    plan=plan,
    risk=Risk.DRAIN,
    after=("services", "persistence_mode", "mig_mode"),
    asks=lambda params: {"services": (REFRESH, *(f"{name}.service" for name in FILES))},
)
"""After MIG, whose devices a specification names."""
