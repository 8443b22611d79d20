"""`nodevet check @local` without click, for the command lines that schedulers run every minute.

What this does not understand to the letter, mistakes and abbreviations included, is click's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nodevet.vet.defaults import CONNECT_TIMEOUT, DEADLINE, PARALLEL

VALUES = ("--baseline", "--fail-on", "--format", "--looks", "--max-age", "--store")
SHORT = {"-b": "--baseline", "-q": "--quiet"}
REPEATED = ("--baseline", "--format")
FLAGS = ("--advice", "--all", "--quiet", "--shadow")
SEVERITIES = ("warning", "info", "critical")  # the default first
LONGEST = 10  # digits of a number, which click judges
REACH: Mapping[str, Any] = {
    "parallel": PARALLEL,
    "connect_timeout": CONNECT_TIMEOUT,
    "deadline": DEADLINE,
    "ssh_config": None,
    "known_hosts": None,
    "accept_new": False,
    "sudo": False,
    "user": None,
    "sample": None,
    "on_steps": None,
    "second_try": None,
    "within": None,
}


def command(words: Sequence[str]) -> Callable[[], int] | None:
    """What runs this command line and returns its exit code; None: click does."""
    if words[:1] != ["check"] or "@local" not in words:
        return None
    given = _option_values(words[1:])
    options = None if given is None else _options(given)
    if options is None:
        return None
    from nodevet.vet.terminal.check import check

    return partial(check, **options)


def _option_values(words: Sequence[str]) -> Mapping[str, list[str]] | None:
    """The values of each option by its long name; None if a word is not plain."""
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name) if not equals else name
        if name in VALUES:
            value = value if equals else next(rest, "")
            if not value.strip() or value.startswith("-"):
                return None
        elif equals or (name not in FLAGS and name != "@local"):
            return None
        given.setdefault(name, []).append(value)
    once = all(len(values) == 1 for name, values in given.items() if name not in REPEATED)
    return given if once and "@local" in given else None


def _options(given: Mapping[str, list[str]]) -> dict[str, Any] | None:
    """The arguments of `check`; None if a value is not valid."""
    from nodevet.base.durations import seconds_of
    from nodevet.cli.display import display_of

    value = {name: values[-1] for name, values in given.items()}
    age, looks = value.get("--max-age"), value.get("--looks", "")
    options: dict[str, Any] = {
        "targets": ("@local",),
        "names": tuple(given.get("--baseline", ())),
        "formats": tuple(given.get("--format", ())),
        "everything": "--all" in given,
        "shadow": "--shadow" in given,
        "fail_on": value.get("--fail-on", SEVERITIES[0]),
        "store": value.get("--store"),
        "max_age": seconds_of(age) if age else None,
        "looks": int(looks) if looks.isascii() and looks.isdecimal() else None,
        "display": display_of(quiet="--quiet" in given, advice="--advice" in given),
        **REACH,
    }
    is_valid = (
        options["fail_on"] in SEVERITIES
        and (options["max_age"] is not None or not age)
        and ((options["looks"] and len(looks) < LONGEST) or not looks)
    )
    return options if is_valid else None
