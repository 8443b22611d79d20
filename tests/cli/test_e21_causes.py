"""The cause first, then what to type."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("apply @local --dry-run", "`nodevet plan` shows what fixes would change"),
        ("apply plan.json --check", "`nodevet plan` shows what fixes would change"),
        ("check n1 --json", "--format json prints JSON"),
        ("apply @local --yes", "no option skips the question"),
        ("feed @local", "the workload is missing before @local; name its file first"),
        ("doctor", "`nodevet check` vets hosts"),
        ("runs --store postgresql://u@127.0.0.1:1/x", "no PostgreSQL server answers there: "),
    ],
)
def test_e21_a_common_mistyped_command_line_names_the_right_one(
    nodevet: Callable[..., Any], words: str, told: str
) -> None:
    done = nodevet(*words.split())
    assert done.returncode == 2
    assert told in done.stderr


def test_e21_an_inventory_of_ansible_or_a_list_of_names_is_read(
    nodevet: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "hosts.ini").write_text("[gpu]\nn[1:2] ansible_port=1\n")
    (tmp_path / "names.txt").write_text("# rack 1\nn[1-2]\n")
    for name in ("hosts.ini", "names.txt"):
        done = nodevet("check", "-i", tmp_path / name, "--connect-timeout", "1s", "--store", "none")
        assert done.returncode == 3 and "2 hosts: 2 not visited" in done.stdout, done


@pytest.mark.parametrize(("given", "advice"), [("h:8786", "h:8786"), ("tcp://h:1", "h:1")])
def test_e21_an_engine_address_without_its_scheme_is_reported_with_the_scheme(
    nodevet: Callable[..., Any], tmp_path: Path, given: str, advice: str
) -> None:
    (tmp_path / "nodevet.toml").write_text(f'engine = "{given}"\n')
    done = nodevet("check", "n1", "-b", "generic", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"nodevet: {tmp_path}/nodevet.toml: not a valid engine: {given}; type dask://{advice}\n"
    )


@pytest.mark.parametrize("given", ["", " "])
def test_e21_an_empty_store_option_does_not_mean_the_default(
    nodevet: Callable[..., Any], given: str
) -> None:
    done = nodevet("runs", "--store", given)
    assert done.returncode == 2
    assert "--store" in done.stderr and "it is empty; type a URL" in done.stderr
