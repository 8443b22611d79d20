"""A plan as the file that is signed: written, and read again."""

import hashlib

import msgspec

from nodevet.base import typed
from nodevet.base.upgrades import Upgrades
from nodevet.fix.model import VERSION, Plan, PlanError
from nodevet.fix.plan.contradictions import contradictions
from nodevet.fix.upgrades import PLAN, UpgradeError, upgraded

MOST_TOLD = 5  # contradictions of a plan


def write(plan: Plan) -> bytes:
    """The file that is signed."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


class _Schema(msgspec.Struct, frozen=True):
    nodevet_plan: int


def read(text: bytes, upgrades: Upgrades = PLAN) -> Plan:
    """A plan, also of an earlier schema. Raises PlanError, also if it contradicts itself."""
    try:
        schema = typed.decode(text, _Schema).nodevet_plan
        if schema == VERSION:
            plan = typed.decode(text, Plan)
        else:
            document = upgraded(msgspec.json.decode(text), schema, VERSION, upgrades)
            plan = typed.convert({**document, "nodevet_plan": VERSION}, Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"not a plan: {error}") from error
    except UpgradeError as error:
        raise PlanError(f"a plan of {error}, or plan again") from error
    if found := list(contradictions(plan)):
        more = [f"and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
        told = "; ".join([*found[:MOST_TOLD], *more])
        raise PlanError(f"not a valid plan: {told}; plan again")
    return plan


def digest(text: bytes) -> str:
    """What a run's journal names a plan by."""
    return hashlib.sha256(text).hexdigest()
