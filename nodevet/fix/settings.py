"""How a plan is carried out: limits, times, reboots and the drain hook, signed with the plan. Pure
but for the search for the hook's program."""

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
    """In nodes and seconds. What is not said is careful."""

    canary: int = 1  # that must be proven before the rest begins; 0: none
    batch: int = 10  # at the same time, after the canary
    max_fail: int = 0  # that may fail; at one more, no further node is begun
    pending_canary: bool = False  # a canary whose change is not in force yet is proof
    pause: float = 0.0  # between the canary and the rest
    settle: float = 5.0  # after which a setting is looked at once more
    reboot: bool = False  # every node that was changed
    verify_reboot: bool = False  # the canary alone
    reboot_timeout: float = 900.0
    boot_settle: float = 120.0
    drain_hook: str = ""  # a command; the host is its last argument. No shell
    drain_timeout: float = 1800.0  # after which the hook is killed, and its node not touched
    holders: str = ""  # comms, units or services that may hold the GPUs, with commas between

    @property
    def limits(self) -> Limits:
        return Limits(
            canary=self.canary, batch=self.batch, max_fail=self.max_fail, proofs=self.proofs
        )

    @property
    def proofs(self) -> frozenset[Outcome]:
        """The outcomes that prove a canary: after a reboot, if there is one, unless it may be
        pending."""
        found = {Outcome.VERIFIED_AFTER_REBOOT}
        found |= {Outcome.CHANGED} if self.pending_canary or not self.reboots else set()
        return frozenset(found | ({Outcome.PENDING} if self.pending_canary else set()))

    @property
    def reboots(self) -> bool:
        """Whether any node may be rebooted."""
        return self.reboot or self.verify_reboot


NAMES = Rollout.__struct_fields__
TIMES = ("pause", "settle", "reboot_timeout", "boot_settle", "drain_timeout")


def option(name: str) -> str:
    """`--max-fail`."""
    return f"--{name.replace('_', '-')}"


def faults(rollout: Rollout) -> Iterator[str]:
    """What no run can be carried out by."""
    for name, least in (("canary", 0), ("batch", 1), ("max_fail", 0)):
        if getattr(rollout, name) < least:
            yield f"{option(name)} {getattr(rollout, name)} is less than {least}"
    for name in TIMES:
        seconds = getattr(rollout, name)
        if not (math.isfinite(seconds) and seconds >= 0):
            yield f"{option(name)} {seconds} is no number of seconds"
    if "\0" in rollout.drain_hook:
        yield "--drain-hook holds a NUL"


def told(rollout: Rollout, hosts: int) -> str:
    """All of it that so many hosts are carried out by, in the words of the command line; a time
    that no reboot follows is left out, and of one host what is about several."""
    parts = []
    if hosts > 1:
        parts = [_told(name, getattr(rollout, name)) for name in ("canary", "batch", "max_fail")]
        parts += ["pending-canary"] if rollout.pending_canary else []
        parts += [_told("pause", rollout.pause)] if rollout.pause else []
    parts.append(_told("settle", rollout.settle))
    for name in ("reboot", "verify_reboot"):
        parts += [option(name).removeprefix("--")] if getattr(rollout, name) else []
    default = Rollout()
    for name in ("reboot_timeout", "boot_settle"):
        value = getattr(rollout, name)
        parts += [_told(name, value)] if rollout.reboots or value != getattr(default, name) else []
    parts += [_told("holders", rollout.holders)] if rollout.holders else []
    parts.append(f"drain-hook {rollout.drain_hook}" if rollout.drain_hook else "no drain-hook")
    if rollout.drain_hook or rollout.drain_timeout != default.drain_timeout:
        parts.append(_told("drain_timeout", rollout.drain_timeout))
    return " · ".join(parts)


def _told(name: str, value: Any) -> str:
    return f"{option(name).removeprefix('--')} {_plain(name, value)}"


def _plain(name: str, value: Any) -> str:
    """As it is typed."""
    if name in TIMES:
        return duration_text(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) or "none"


def differences(planned: Rollout, other: Rollout) -> list[str]:
    """What of another rollout is not the planned one, each in words."""
    return [
        f"{option(name)} is {_plain(name, new)}, {_plain(name, old)} was approved"
        for name in NAMES
        if (old := getattr(planned, name)) != (new := getattr(other, name))
    ]


def no_hook(risks: Iterable[Risk], rollout: Rollout) -> str:
    """Why nodes could not be drained that must be; empty if they can, or need not."""
    needs = [risk.value for risk in risks if risk in DRAIN_RISKS]
    if not needs and not rollout.reboots:
        return ""
    what = f"a step of risk {needs[0]}" if needs else "a reboot"
    if not rollout.drain_hook.strip():
        return f"{what} needs --drain-hook, which says that a node is drained"
    try:
        words = shlex.split(rollout.drain_hook)
    except ValueError as error:
        return f"--drain-hook {rollout.drain_hook!r}: {error}"
    if not words or shutil.which(words[0]) is None:
        program = words[0] if words else rollout.drain_hook
        return (
            f"--drain-hook: {program!r} is not a program that can be run here, and {what} needs it"
        )
    return ""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is carried out by, and where that is not what was approved."""

    rollout: Rollout
    nodevet: str  # the version
    overrides: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """As the journal and the result keep it."""
        kept: dict[str, Any] = msgspec.to_builtins(self.rollout)
        return {**kept, "nodevet": self.nodevet, "overrides": list(self.overrides)}


class OverrideError(Exception):
    """A run would not be what was approved, and it was not said that it may."""


def carried(
    planned: tuple[Rollout, str],
    kept: tuple[Rollout, str] | None,
    asked: Mapping[str, Any],
    version: str,
    *,
    override: bool,
) -> Carried:
    """What a run is carried out by: as planned, or as the run began where it is resumed (`kept`),
    but for what is asked for now; rollouts with the version of nodevet.

    Raises OverrideError if that differs from what was planned, or kept, without `override`.
    """
    base, known = kept or planned
    rollout = msgspec.structs.replace(base, **asked)
    # what another plan or run had was said then; only what is new must be said now
    new = [*differences(base, rollout), *_version(known, version)]
    if new and not override:
        raise OverrideError(
            f"not what was approved: {'; '.join(new)}; say --override, or plan again"
        )
    overrides = [*differences(planned[0], rollout), *_version(planned[1], version)]
    return Carried(rollout=rollout, nodevet=version, overrides=tuple(overrides))


def with_fewer(planned: Rollout, found: Carried, max_fail: int) -> Carried:
    """No more hosts than this may fail: more careful, so no one has to allow it, and told."""
    if max_fail >= found.rollout.max_fail:
        return found
    rollout = msgspec.structs.replace(found.rollout, max_fail=max_fail)
    others = found.overrides[len(differences(planned, found.rollout)) :]
    told = (*differences(planned, rollout), *others)
    return msgspec.structs.replace(found, rollout=rollout, overrides=told)


def _version(planned: str, now: str) -> list[str]:
    if planned == now:
        return []
    return [f"this is nodevet {now}, {planned or 'one without a version'} made the plan"]


def kept(options: Mapping[str, Any]) -> tuple[Rollout, str] | None:
    """From what a run's journal keeps of its options; None if it keeps none.

    Raises msgspec.ValidationError, and ValueError for values that no run has.
    """
    if "canary" not in options:
        return None
    told = {name: options[name] for name in NAMES if name in options}
    rollout = typed.convert(told, Rollout)
    if found := list(faults(rollout)):
        raise ValueError("; ".join(found))
    return rollout, str(options.get("nodevet", ""))
