"""Section nccl_ras: what NCCL's RAS port says of a job's ranks; read only if `nodevet diagnose
--nccl-ras` asks for it."""

from typing import Annotated

from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

ANSWERS = at_most(4)  # the probe asks at the first look and at the last
COMMUNICATORS = at_most(8192)  # the probe keeps as many ranks of all communicators together
RANKS = at_most(8192)
KINDS = at_most(16)  # of collectives; NCCL counts 5


class RasRank(Record, frozen=True, kw_only=True):
    """A rank of a communicator that answered. Its number counts within the communicator."""

    rank: int
    host: Text | None = None  # the address of its RAS thread
    pid: int | None = None  # in its own pid namespace
    # collective -> how often the rank launched it: launched, not completed; 0 is left out
    launched: Annotated[dict[Text, int], KINDS] | None = None


class MissingRank(Record, frozen=True, kw_only=True):
    """A rank of a communicator that did not answer."""

    rank: int
    host: Text | None = None
    pid: int | None = None
    unresponsive: bool | None = None  # for about 5 s
    considered_dead: bool | None = None  # after about 60 s


class RasCommunicator(Record, frozen=True, kw_only=True):
    """One communicator of the job."""

    hash: Text  # with the secondary hash
    size: int | None = None  # ranks
    ranks: Annotated[tuple[RasRank, ...], RANKS] | None = None
    missing: Annotated[tuple[MissingRank, ...], RANKS] | None = None


class RasAnswer(Record, frozen=True, kw_only=True):
    """One answer to VERBOSE STATUS."""

    at_s: Real  # seconds after the first look
    nccl: Text | None = None  # NCCL's version, as the answer says
    timeouts: int | None = None  # of the RAS network while it collected the answer
    left_out: int | None = None  # communicators: those with the fewest ranks
    communicators: Annotated[tuple[RasCommunicator, ...], COMMUNICATORS] | None = None


class NcclRas(SectionRecord, frozen=True, kw_only=True):
    """`answers` is empty if the node did not ask: `not_asked` says why."""

    unique = (
        "answers[].at_s",
        "answers[].communicators[].hash",
        "answers[].communicators[].ranks[].rank",
        "answers[].communicators[].missing[].rank",
    )
    plural = "RAS networks"
    volatile = ("not_asked", "nccl", "answers")

    not_asked: Text = ""
    nccl: Text | None = None  # NCCL's version, by the files of the processes that listen
    answers: Annotated[tuple[RasAnswer, ...], ANSWERS] | None = None
