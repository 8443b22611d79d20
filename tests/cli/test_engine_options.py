"""Where hosts are visited from, as a command line says it."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["plan", "gpu1", "--engine", "dask://x:1"], "would write twice"),
        (["apply", "plan.json", "--launcher", "eu=ssh eu"], "would write twice"),
        (["rollback", "runs", "--engine", "dask://x:1"], "would write twice"),
        (["check", "gpu1", "--launcher", "ssh eu"], "write it as --launcher eu='ssh bastion-eu'"),
        (["check", "gpu1", "--site", "@dc1=eu"], "sites are given, and no launcher"),
        (["check", "gpu1", "--engine", "dask://x"], "not a valid engine: dask://x"),
    ],
)
def test_what_is_refused_says_why(
    nodevet: Callable[..., CompletedProcess[str]], args: list[str], why: str
) -> None:
    done = nodevet(*args)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())
