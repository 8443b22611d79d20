"""What looks the same as a cause whose rule holds: its confidence is then low (pure)."""

from collections.abc import Collection, Mapping

from nodevet.diagnose.model import Cause, Figure
from nodevet.diagnose.rules import FEW_TICKS, OTHER_WAITS, SIMILAR
from nodevet.diagnose.words import value_text

Figures = Mapping[str, Figure]
HALF = 50.0  # percent
QUIET = 30.0  # percent of the driver's samples in which the GPU did nothing
FULL = 70.0  # percent of the link
COPIED_MB = 50.0  # MB/s: to copy as much takes 1 % of a core
CORE = 400.0  # percent: more than a core can copy was not copied, as from /dev/zero
PAGEABLE_GB = 3.0  # GB/s: of pageable memory, half a core copies as much
HOT = 80.0  # percent of a core: what the GPU waits for may be this thread


def lookalikes(causes: Collection[Cause], figures: Figures) -> Mapping[Cause, str]:
    """Each of these causes that something else resembles -> what, in words."""
    away = _first_thread_text(figures)
    at_peer = "its first thread waits for the network" if Cause.NETWORK in causes else ""
    texts = {
        Cause.STUCK: _may_go_on(figures),
        Cause.STARVED: _no_others(figures)
        or away * (not _is_first_hottest(figures))
        or _waits_longer(causes, figures),
        Cause.STORAGE: away or _hot(figures),
        Cause.NETWORK: away or _hot(figures),
        Cause.PREPROCESSING: away or at_peer or _bursts(figures),
        Cause.SUBMISSION: _reads(figures),
        Cause.TRANSFER: _copies_little(figures),
    }
    return {cause: texts[cause] for cause in causes if texts.get(cause)}


def _value(figures: Figures, name: str) -> float:
    return figures[name].value or 0.0


def _may_go_on(figures: Figures) -> str:
    beside = figures["may_go_on"]
    if _value(figures, "may_go_on") < HALF or _value(figures, "frozen") < HALF:
        return ""
    return f"{beside.note} may let it go on: the engine of an inference server sleeps so, too"


def _no_others(figures: Figures) -> str:
    others = figures["others_cpus"].value
    is_none = others is not None and others < FEW_TICKS
    return "nodevet saw no process that takes them" if is_none else ""


def _waits_longer(causes: Collection[Cause], figures: Figures) -> str:
    """Of two waits, the shorter one may be too short to matter the next time."""
    if set(OTHER_WAITS).isdisjoint(causes):
        return ""
    share = figures["starved_of_waits"].value
    is_shorter = share is not None and share < SIMILAR
    return "this wait is shorter than the other one" if is_shorter else ""


def _first_thread_text(figures: Figures) -> str:
    """What the first thread does instead of waiting for another thread."""
    busy = _value(figures, "sm_busy")
    paced = _value(figures, "paced") - busy  # while the GPU is busy, it may sleep until it is done
    if paced >= HALF / 100 * (100 - busy):
        return f"its first thread sleeps for a time of its own ({figures['paced'].note})"
    if _value(figures, "serving") >= HALF and " thread " not in figures["serving"].note:
        return f"its first thread waits for requests ({figures['serving'].note})"
    return ""


def _is_first_hottest(figures: Figures) -> bool:
    """Whether the thread that waits for a CPU most is a first thread."""
    hot, helper = figures["thread_wants"], figures["helper_wants"]
    pid, _, tid = hot.note.rpartition(", thread ")
    return pid.endswith(f" {tid}") and (hot.value or 0.0) >= (helper.value or 0.0)


def _bursts(figures: Figures) -> str:
    """One hot thread of a GPU that is quiet for long may poll for what seldom comes."""
    is_alone = _value(figures, "thread_wants") >= HOT > _value(figures, "helpers_want")
    if not is_alone or _value(figures, "quiet") < QUIET or _value(figures, "hot_threads") > 1:
        return ""
    return "a server that polls for requests is as hot, and its GPU as quiet in between"


def _hot(figures: Figures) -> str:
    hot = figures["thread_wants"]
    is_hot = _value(figures, "thread_wants") >= HOT
    return f"another thread is hot, and the GPU may wait for that ({hot.note})" if is_hot else ""


def _reads(figures: Figures) -> str:
    """What a thread reads is copied in the kernel, too."""
    copied = _value(figures, "read_rate") / COPIED_MB
    system = _value(figures, "hottest_thread") * _value(figures, "thread_system") / 100
    if not system / 2 <= copied <= CORE:
        return ""
    return "to read so much takes at least half of that time in the kernel"


def _copies_little(figures: Figures) -> str:
    is_full = max(_value(figures, "link"), _value(figures, "idle_link")) >= FULL
    rate = figures["link_rate"]
    if is_full or rate.value is None or rate.value >= PAGEABLE_GB:
        return ""
    return f"to copy {value_text(rate)} takes less than half of a core"
