"""How nodevet applies a plan: limits, times, reboots and the drain hook, signed with the plan.

Pure, except `missing_hook`, which looks for the hook's program.
"""

import math
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.base import typed
from nodevet.base.durations import duration_text
from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome

DRAIN_RISKS = frozenset({Risk.DRAIN, Risk.REBOOT})


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of nodes, and seconds. The defaults change few nodes at a time."""

    canary: int = 1  # nodes that must be proven before the others begin; 0: none
    batch: int = 10  # nodes at the same time, after the canary
    max_fail: int = 0  # nodes that may fail; after one more, the run starts no more nodes
    pending_canary: bool = False  # a canary whose change is not effective yet counts as proven
    pause: float = 0.0  # between the canary and the others
    settle: float = 5.0  # before each setting is read again
    reboot: bool = False  # reboot every changed node
    verify_reboot: bool = False  # reboot only the canary
    power_cycle: bool = False  # switch every changed node off and on by its BMC
    max_power_cycles: int = 4  # nodes that nodevet switches at the same time
    power_off_timeout: float = 300.0  # seconds to shut down; then nodevet switches it off
    reboot_timeout: float = 900.0
    boot_settle: float = 120.0
    drain_hook: str = ""  # a command; the host is its last argument. No shell
    drain_timeout: float = 1800.0  # then the hook is killed and its node refused
    holders: str = ""  # comms, units or services that may hold the GPUs, separated by commas

    @property
    def limits(self) -> Limits:
        return Limits(
            canary=self.canary, batch=self.batch, max_fail=self.max_fail, proofs=self.proofs
        )

    @property
    def proofs(self) -> frozenset[Outcome]:
        """The outcomes that prove a canary. If the plan reboots it, only the state after the reboot
        counts, unless the canary may be pending."""
        outcomes = {Outcome.VERIFIED_AFTER_REBOOT}
        outcomes |= {Outcome.CHANGED} if self.pending_canary or not self.reboots else set()
        return frozenset(outcomes | ({Outcome.PENDING} if self.pending_canary else set()))

    @property
    def reboots(self) -> bool:
        """Whether the plan may reboot a node."""
        return self.verify_reboot or self.reboots_each

    @property
    def reboots_each(self) -> bool:
        """Whether every changed node is rebooted."""
        return self.reboot or self.power_cycle


NAMES = Rollout.__struct_fields__
TIMES = ("pause", "settle", "power_off_timeout", "reboot_timeout", "boot_settle", "drain_timeout")


def option(name: str) -> str:
    """`--max-fail`."""
    return f"--{name.replace('_', '-')}"


def faults(rollout: Rollout) -> Iterator[str]:
    """Why no run can have these values."""
    for name, least in (("canary", 0), ("batch", 1), ("max_fail", 0), ("max_power_cycles", 1)):
        if getattr(rollout, name) < least:
            yield f"{option(name)} {getattr(rollout, name)} is less than {least}"
    for name in TIMES:
        seconds = getattr(rollout, name)
        if not (math.isfinite(seconds) and seconds >= 0):
            yield f"{option(name)} {seconds} is not a number of seconds"
    if "\0" in rollout.drain_hook:
        yield "--drain-hook contains a NUL"


def rollout_text(rollout: Rollout, hosts: int) -> str:
    """The values that matter for this number of hosts, in the words of the command line: without
    times of reboots if there is none, and without limits for one host."""
    parts = []
    if hosts > 1:
        parts = [
            _option_text(name, getattr(rollout, name)) for name in ("canary", "batch", "max_fail")
        ]
        parts += ["pending-canary"] if rollout.pending_canary else []
        parts += [_option_text("pause", rollout.pause)] if rollout.pause else []
    parts.append(_option_text("settle", rollout.settle))
    for name in ("reboot", "verify_reboot", "power_cycle"):
        parts += [option(name).removeprefix("--")] if getattr(rollout, name) else []
    default = Rollout()
    cycles = rollout.max_power_cycles
    if (hosts > 1 and rollout.power_cycle) or cycles != default.max_power_cycles:
        parts.append(_option_text("max_power_cycles", cycles))
    if rollout.power_cycle or rollout.power_off_timeout != default.power_off_timeout:
        parts.append(_option_text("power_off_timeout", rollout.power_off_timeout))
    for name in ("reboot_timeout", "boot_settle"):
        value = getattr(rollout, name)
        parts += (
            [_option_text(name, value)]
            if rollout.reboots or value != getattr(default, name)
            else []
        )
    parts += [_option_text("holders", rollout.holders)] if rollout.holders else []
    parts.append(f"drain-hook {rollout.drain_hook}" if rollout.drain_hook else "no drain-hook")
    if rollout.drain_hook or rollout.drain_timeout != default.drain_timeout:
        parts.append(_option_text("drain_timeout", rollout.drain_timeout))
    return " · ".join(parts)


def _option_text(name: str, value: Any) -> str:
    return f"{option(name).removeprefix('--')} {_value_text(name, value)}"


def _value_text(name: str, value: Any) -> str:
    """A value as people type it."""
    if name in TIMES:
        return duration_text(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) or "none"


def differences(planned: Rollout, rollout: Rollout) -> list[str]:
    """How another rollout differs from the planned one, each difference in words."""
    return [
        f"{option(name)} is {_value_text(name, new)}, {_value_text(name, old)} was approved"
        for name in NAMES
        if (old := getattr(planned, name)) != (new := getattr(rollout, name))
    ]


def missing_hook(risks: Iterable[Risk], rollout: Rollout) -> str:
    """Why nodevet cannot drain the nodes that need it; empty if it can, or if none needs it."""
    needs = [risk.value for risk in risks if risk in DRAIN_RISKS]
    if not needs and not rollout.reboots:
        return ""
    cause = f"a step of risk {needs[0]}" if needs else "a reboot"
    if not rollout.drain_hook.strip():
        return f"{cause} needs --drain-hook, which says that a node is drained"
    try:
        words = shlex.split(rollout.drain_hook)
    except ValueError as error:
        return f"--drain-hook {rollout.drain_hook!r}: {error}"
    if not words or shutil.which(words[0]) is None:
        program = words[0] if words else rollout.drain_hook
        return f"--drain-hook: {program!r} is not a program that can run here, and {cause} needs it"
    return ""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """How nodevet applies a run, and how that differs from what was approved."""

    rollout: Rollout
    nodevet: str  # the version
    overrides: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The options as the journal and the result store them."""
        options: dict[str, Any] = msgspec.to_builtins(self.rollout)
        return {**options, "nodevet": self.nodevet, "overrides": list(self.overrides)}


class OverrideError(Exception):
    """A run would differ from what was approved, without --override."""


def terms_of_run(
    planned: tuple[Rollout, str],
    previous: tuple[Rollout, str] | None,
    asked: Mapping[str, Any],
    version: str,
    *,
    override: bool,
) -> Carried:
    """How nodevet applies a run: as planned, or as a resumed run began (`previous`), with the
    values `asked` now. Rollouts come with the version of nodevet.

    Raises OverrideError if that differs from the plan, or from the resumed run, without `override`.
    """
    base, made_by = previous or planned
    rollout = msgspec.structs.replace(base, **asked)
    # people allowed earlier differences then; only new ones need --override now
    unapproved = [*differences(base, rollout), *_version_difference(made_by, version)]
    if unapproved and not override:
        raise OverrideError(
            f"not what was approved: {'; '.join(unapproved)}; add --override, or plan again"
        )
    overrides = [*differences(planned[0], rollout), *_version_difference(planned[1], version)]
    return Carried(rollout=rollout, nodevet=version, overrides=tuple(overrides))


def with_max_fail(planned: Rollout, terms: Carried, max_fail: int) -> Carried:
    """The terms with a lower limit of failures: more careful, so it needs no --override, but it is
    listed as a difference."""
    if max_fail >= terms.rollout.max_fail:
        return terms
    rollout = msgspec.structs.replace(terms.rollout, max_fail=max_fail)
    version_difference = terms.overrides[len(differences(planned, terms.rollout)) :]
    overrides = (*differences(planned, rollout), *version_difference)
    return msgspec.structs.replace(terms, rollout=rollout, overrides=overrides)


def _version_difference(planned: str, version: str) -> list[str]:
    if planned == version:
        return []
    return [f"this is nodevet {version}, {planned or 'one without a version'} made the plan"]


def rollout_of_options(options: Mapping[str, Any]) -> tuple[Rollout, str] | None:
    """The rollout and the version of nodevet from a run's options in its journal; None if they are
    not there.

    Raises msgspec.ValidationError, and ValueError for values that no run can have.
    """
    if "canary" not in options:
        return None
    values = {name: options[name] for name in NAMES if name in options}
    rollout = typed.convert(values, Rollout)
    if problems := list(faults(rollout)):
        raise ValueError("; ".join(problems))
    return rollout, str(options.get("nodevet", ""))
