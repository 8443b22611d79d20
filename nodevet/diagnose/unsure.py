"""Why other ranks than those that nodevet names may be late, or none (pure)."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nodevet.diagnose.model import DOWN, POLLS, Cause, Confidence, Rank, RankState
from nodevet.diagnose.rules import HOT

ENDED = "most of its ranks ended: it may end, or begin again"
SHARED = "several ranks share a GPU, and what one of them does hides what the other does"
UNSURE_CAUSE = "what holds the late rank up is not certain"
LIKE_WAITING = "the others are not seen to poll, and a rank that waits may look like this one"
POLLS_ON_CPU = "ranks that poll on their CPUs for another one, as with MPI, look the same"
MIXED = "the ranks do different things"


def unsure(late: Sequence[Rank], ranks: Sequence[Rank]) -> Iterator[str]:
    """What makes it doubtful that these are late, and no others."""
    among = frozenset(late)
    seen = [rank for rank in ranks if rank.state is not RankState.UNSEEN]
    others = [rank for rank in seen if rank not in among]
    if sum(rank.state is RankState.ENDED for rank in seen) * 2 > len(seen):
        yield ENDED
    users = Counter((rank.host, gpu) for rank in seen for gpu in rank.gpus)
    all_wait = not late and all(rank.state in POLLS for rank in seen)
    doubtful = seen if all_wait else [rank for rank in late if rank.state not in DOWN]
    if any(users[rank.host, gpu] > 1 for rank in doubtful for gpu in rank.gpus):
        yield SHARED
    if any(each.state is RankState.HELD_UP and each.confidence is Confidence.LOW for each in late):
        yield UNSURE_CAUSE
    if _may_be_others(late, others):
        yield LIKE_WAITING
    if not late and is_mixed(seen):
        yield MIXED
    if not late and _most_poll_on_cpus(seen):
        yield POLLS_ON_CPU


def is_mixed(seen: Sequence[Rank]) -> bool:
    """Whether neither most ranks compute or are held up, nor all wait."""
    states = Counter(rank.state for rank in seen)
    most = max(states[RankState.COMPUTES], states[RankState.HELD_UP]) * 2 > len(seen)
    return not most and not states.keys() <= {*POLLS, *DOWN}


def _may_be_others(late: Sequence[Rank], others: Sequence[Rank]) -> bool:
    """Whether the others may be late instead: not if most are seen to wait. A GPU that polls shows
    that it waits; a thread that waits for a peer, only if the late rank does not sleep, too."""
    polls = sum(rank.state is RankState.WAITS for rank in others)
    at_peer = sum(rank.cause in (Cause.NETWORK, Cause.STUCK) for rank in others)
    asleep = sum(rank.state is RankState.QUIET for rank in others)
    if any(rank.state is RankState.QUIET for rank in late):
        return polls * 2 <= len(others)
    if any(map(_is_like_waiting, late)):
        return (polls + at_peer) * 2 <= len(others)
    # some of the others may be just below the threshold of the cause that half of them have
    return len(late) == len(others) == asleep > 1


def _is_like_waiting(rank: Rank) -> bool:
    """Whether a rank that waits may look like this: its GPU polls for a part of the time, or its
    CPU polls."""
    is_hot = rank.state is RankState.HELD_UP and rank.cause in HOT
    return is_hot or rank.state is RankState.COMPUTES


def _most_poll_on_cpus(seen: Sequence[Rank]) -> bool:
    """Whether most may only poll on their CPUs, while another one computes; one that polls and has
    no CPU of its own waits for it."""
    hot = sum(rank.cause in (*HOT, Cause.STARVED) for rank in seen)
    return hot * 2 > len(seen) and any(rank.state is RankState.COMPUTES for rank in seen)
