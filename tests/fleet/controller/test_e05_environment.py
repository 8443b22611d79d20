"""What whoever calls nodevet has in the environment does not reach the probe of this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.evidence.document import decode
from nodevet.evidence.gpu import Gpus
from nodevet.fleet import Options, Visit
from nodevet.fleet.controller import local
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.model import Host

HERE = Host(name="here", local=True)
THEIRS = ("LD_LIBRARY_PATH", "LD_PRELOAD_X", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_X", "X")
SAYS = "import os; raise SystemExit(','.join(sorted(os.environ)))"


def gpus(visit: Visit) -> tuple[str, str]:
    section = decode(visit.evidence or b"")[Gpus]
    return section.status, section.why


def test_e05_a_library_of_the_caller_is_not_loaded(
    go: Callable[..., dict[str, Visit]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = gpus(go([HERE])["here"])
    (tmp_path / "libnvidia-ml.so.1").write_text("truncated")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert gpus(go([HERE])["here"]) == before
    with SshExecutor([HERE], Options(deadline=30)) as worker:
        section = decode(worker.probe("here"))[Gpus]
    assert (section.status, section.why) == before


def test_e05_every_process_that_reads_this_machine_has_a_fixed_environment(
    go: Callable[..., dict[str, Visit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THEIRS:
        monkeypatch.setenv(name, "/theirs")
    monkeypatch.setattr(local, "SERVE", SAYS)
    assert go([HERE])["here"].why.endswith(": HOME,LC_ALL,PATH")
    with SshExecutor([HERE], Options(deadline=30)) as worker:
        for ask in (lambda: worker.probe("here"), lambda: worker.lock("here", "a test")):
            with pytest.raises(WorkError, match=r"HOME,LC_ALL,PATH$"):
                ask()
