"""Section environment: variables that the node sets for every process."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

VARIABLES = at_most(1024)  # of a few families, set for every process; the probe reads 500


class Variable(Record, frozen=True, kw_only=True):
    """A variable of CUDA, NCCL, the loader or similar programs, at one place that sets it."""

    name: Text | None = None  # CUDA_VISIBLE_DEVICES; /etc/ld.so.preload of a library in that file
    value: Text | None = None  # null if it may hold a secret
    place: Text | None = None  # /etc/profile.d/cuda.sh:3, or the unit


class UnitEnvironment(Record, frozen=True, kw_only=True):
    """The environment of a unit that was asked for. `systemctl show`, EnvironmentFile."""

    name: Text
    variables: Annotated[tuple[Variable, ...], VARIABLES] | None = None


class Environment(SectionRecord, frozen=True, kw_only=True):
    """Files that set variables for logins, sessions, services and NCCL; no process is looked at."""

    unique = ("units[].name",)

    variables: Annotated[tuple[Variable, ...], VARIABLES] | None = None
    # files and folders that are there and could not be read, with the reasons; "" if there are none
    unread: Text | None = None
    units: Annotated[tuple[UnitEnvironment, ...], bounds.ASKED] | None = None
