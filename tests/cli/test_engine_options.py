"""Where hosts are visited from, as nodevet.toml says it."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[sites]\n"@dc1" = "eu"\n', "sites are given, and no launcher"),
        ('engine = "dask://x"\n', "not a valid engine: dask://x"),
        ('engine = "dask://x:1"\nlaunchers.eu = "ssh eu"\n', "cannot be used together"),
    ],
)
@pytest.mark.parametrize("command", ["check", "gate", "capture", "diagnose"])
def test_invalid_engine_settings_are_refused_with_file_and_reason(
    nodevet: Run, tmp_path: Path, text: str, why: str, command: str
) -> None:
    (tmp_path / "nodevet.toml").write_text(text)
    done = nodevet(command, "gpu1", cwd=tmp_path)
    assert done.returncode == 2
    assert "nodevet.toml: " in done.stderr and why in " ".join(done.stderr.split())


def test_a_check_of_this_machine_ignores_the_engine_setting(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "nodevet.toml").write_text('engine = "dask://x"\n')
    done = nodevet("check", "@local", "-b", "generic", cwd=tmp_path)
    assert "not a valid engine" not in done.stderr


@pytest.mark.parametrize("words", ["check gpu1 --launcher eu=x", "apply plan.json --engine x"])
def test_the_former_engine_options_point_to_nodevet_toml(nodevet: Run, words: str) -> None:
    done = nodevet(*words.split())
    assert done.returncode == 2
    assert "nodevet.toml says where hosts are visited from" in done.stderr
