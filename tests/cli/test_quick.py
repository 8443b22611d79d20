"""The plainest checks of this machine need no click, and mean what they mean to click."""

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from nodevet import cli
from nodevet.vet import quick
from nodevet.vet.terminal import check

PLAIN = """\
check @local
check @local -b generic
check -b generic @local
check @local --baseline generic -b site/b.yaml
check @local --baseline=generic --format=json
check @local --format json:/tmp/x.json --format table
check @local -b generic --max-age 5m
check @local --max-age 1.5h --looks 3
check @local --fail-on critical
check @local --fail-on=info --store none
check @local --store sqlite:////tmp/x.sqlite
check @local --all --shadow --quiet --advice
check @local -q"""
OTHERS = """\
check gpu1
check
check @local gpu1
check @local @local
check @local -bgeneric
check @local --base generic
check @local --bogus
check @local -b
check @local -b --quiet
check @local -b ''
check @local --store ' '
check @local --quiet=yes
check @local --format=
check @local --max-age
check @local --max-age 5
check @local --max-age none
check @local --max-age 5x
check @local --looks 0
check @local --looks x
check @local --looks ²
check @local --looks 1234567890
check @local --looks 3 --looks 4
check @local --fail-on new
check @local --fail-on Warning
check @local -b generic --help
check @local --save evidence
check @local -- --quiet
-q check @local
gate @local"""


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], dict[str, Any]]:
    """The arguments that `run` checks hosts with, defaults included."""
    met: dict[str, Any] = dict(check.check.__kwdefaults__ or {})
    code = check.check.__code__
    names = code.co_varnames[: code.co_argcount]
    met.update(zip(names, check.check.__defaults__ or (), strict=True))

    def arguments(run: Callable[[], Any]) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []
        monkeypatch.setattr(check, "check", lambda **given: seen.append(given) or 0)
        assert not run()
        return {**met, **seen[0]}

    return arguments


@pytest.mark.parametrize("line", PLAIN.splitlines())
def test_a_plain_line_means_the_same_to_click(
    line: str, arguments: Callable[[Callable[[], Any]], dict[str, Any]]
) -> None:
    words = shlex.split(line)

    def by_click() -> Any:
        return cli.nodevet.main(words, standalone_mode=False)

    def without() -> int:
        command = quick.command(words)
        assert command is not None
        return command()

    assert arguments(without) == arguments(by_click)


@pytest.mark.parametrize("line", OTHERS.splitlines())
def test_every_other_line_is_left_to_click(line: str) -> None:
    assert quick.command(shlex.split(line)) is None


def test_an_ascii_output_stream_gets_utf_8_as_with_click(
    nodevet: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert " · " in nodevet("check", "@local", "-b", "generic").stdout
