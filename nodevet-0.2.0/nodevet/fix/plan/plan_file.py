"""Writes a plan as the file that people sign, and reads it."""

import hashlib

import msgspec

from nodevet.base import typed
from nodevet.base.printable import brief
from nodevet.base.upgrades import Upgrades
from nodevet.fix.model import VERSION, Plan, PlanError
from nodevet.fix.plan.contradictions import contradictions
from nodevet.fix.plan.exact import unknown_key
from nodevet.fix.upgrades import PLAN, UpgradeError, upgraded

MOST_TOLD = 5  # contradictions of a plan


def write(plan: Plan) -> bytes:
    """The bytes of the plan's file, which people sign."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


class _Schema(msgspec.Struct, frozen=True):
    nodevet_plan: int


def read(text: bytes, upgrades: Upgrades = PLAN) -> Plan:
    """The plan in a file of this or an earlier schema. Raises PlanError, also if it contradicts
    itself."""
    try:
        schema, document = typed.decode(text, _Schema).nodevet_plan, msgspec.json.decode(text)
        if schema == VERSION:
            plan = typed.decode(text, Plan)
        else:
            current = upgraded(document, schema, VERSION, upgrades)
            plan = typed.convert({**current, "nodevet_plan": VERSION}, Plan)
        if key := typed.repeated_key(text):
            raise PlanError(f"not a plan: two values for the key {brief(repr(key))}")
        if schema == VERSION and (key := unknown_key(document, msgspec.to_builtins(plan))):
            raise PlanError(f"not a plan: it has an unknown key {brief(repr(key))}; plan again")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"not a plan: {error}") from error
    except UpgradeError as error:
        raise PlanError(f"a plan of {error}, or plan again") from error
    if problems := list(contradictions(plan)):
        rest = [f"and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else []
        summary = "; ".join([*problems[:MOST_TOLD], *rest])
        raise PlanError(f"not a valid plan: {summary}; plan again")
    return plan


def digest(text: bytes) -> str:
    """SHA-256 of the plan's file, which identifies it in the journal of a run."""
    return hashlib.sha256(text).hexdigest()
