"""A kind of incident: a load of known cause, one file in tests/corpus/kinds.

The file has `KIND` and a function `run(file)`, which never returns. Nothing else changes if one is
added: `make incidents` records it, `make calibrate` judges it.
"""

import hashlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
BUNDLES = HERE / "bundles"
MACHINE = BUNDLES / "machine.json"  # bundle: how busy the CPUs were before its load, in percent
BUSY = 50.0  # percent: from here on a quiet background was a loaded one
BACKGROUNDS = ("quiet", "loaded", "other job", "container", "quota")
WITHOUT_QUOTA = BACKGROUNDS[:-1]
OUTSIDE = tuple(name for name in BACKGROUNDS if name != "container")
QUOTA = 1.5  # CPUs of the background with a cgroup's quota
LENGTHS = {"quiet": (5, 10)}  # seconds; of the other backgrounds LENGTH
LENGTH = 5


def is_drawn(name: str) -> bool:
    """Whether a kind is kept out of tuning: two of three are, drawn by their names. The first 39
    kinds say it themselves."""
    last = name.rpartition(".")[2]
    return hashlib.sha256(last.encode()).digest()[0] % 3 != 0


@dataclass(frozen=True)
class Kind:
    """The true cause of a load, and what an engineer should do about it."""

    label: str  # a cause; two with ` + ` are a mixture
    second: str  # another answer that does no harm
    action: str
    kept_out: bool = False  # nobody may use it to choose a threshold
    gpu: Mapping[str, int] = field(default_factory=dict)  # of its simulated GPU
    gpu_node: int | None = None  # of its GPUs, where nodevet sees a machine with two NUMA nodes
    needs: str = ""  # `slow file`, or `memory limit` with a slow file
    has_process: bool = True
    backgrounds: tuple[str, ...] = BACKGROUNDS
    by_background: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def labels(self, background: str, busy: float = 0.0) -> tuple[str, str]:
        """(the cause, the second best) with this background; `busy`: percent, by MACHINE."""
        found = background if busy < BUSY else "loaded"
        return self.by_background.get(found, (self.label, self.second))


def names() -> list[str]:
    return sorted(path.stem for path in (HERE / "kinds").glob("*.py"))


def module(name: str) -> ModuleType:
    """The file of a kind; it may import tests/diagnosis/loads."""
    loads = str(HERE.parent / "diagnosis" / "loads")
    if loads not in sys.path:
        sys.path.append(loads)
    return importlib.import_module(f"tests.corpus.kinds.{name}")


def kind(name: str) -> Kind:
    found = module(name).KIND
    assert type(found).__name__ == "Kind", f"{name}: KIND is missing"
    return found


def bundle(name: str, background: str, seconds: int) -> Path:
    return BUNDLES / f"{name}.{background.replace(' ', '-')}.{seconds}s.json.gz"


def parts(path: Path) -> tuple[str, str, int]:
    """(kind, background, seconds) of a bundle."""
    name, background, seconds = path.name.removesuffix(".json.gz").split(".")
    return name, background.replace("-", " "), int(seconds.rstrip("s"))


if __name__ == "__main__":  # python -m tests.corpus.kind NAME [FILE]: run its load
    import ctypes

    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with whoever started it
    module(sys.argv[1]).run(sys.argv[2] if len(sys.argv) > 2 else "")
