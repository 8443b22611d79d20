"""What baselines ask of the probe: things by name, or questions."""

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.baseline.choose import may_fit
from nodevet.checking.catalog import Catalog
from nodevet.model import Check, Host
from nodevet.model.baseline import Baseline, Expectation
from nodevet.vet.use.context import VetContext

ASKS = 500  # that the probe takes in one request
LONGEST = 1 << 14  # characters of a question, as JSON
WHOLE = 1 << 19  # characters of all names and questions, as they are sent: in ASCII
RUN = ("commands", "framework", "loader")
"""The sections that run programs: nodevet requests only what the baseline allows
(`allow_commands`).
"""
ALWAYS = frozenset({"host", "gpu", "pci", "memory", "modules"})
"""The sections by which a host's baseline is chosen, what it is (nodevet.checking.facts), and
whether it still boots (nodevet.remote.probe.settle)."""
TO_CHANGE = ALWAYS | {"processes"}
"""The sections by which nodevet decides whether it may change a node: also what uses the GPUs."""
AskedName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Question = dict[str, Any]
"""A question about one thing besides its name: a JSON object for the section's collector."""
Asked = tuple[AskedName | Question, ...]


class AskError(Exception):
    """Baselines ask the probe for something that it cannot answer; the message says why."""


def asks(context: VetContext, *, fixes: bool = False, commands: bool = True) -> dict[str, Asked]:
    """What the probe must read for any of these baselines, by section.

    `fixes`: also what plans need. `commands`: also the commands that baselines run. Raises AskError
    for an invalid question, for a command that the baseline does not allow, and if all questions
    together are too long.
    """
    questions_by_section: dict[str, dict[str, Any]] = {}
    for baseline in context.baselines:
        for wish in baseline.expectations:
            for section, asked in _check_asks(context.catalog, wish, fixes):
                if section in RUN and not commands:
                    continue
                if section in RUN and asked and not baseline.allow_commands:
                    why = "runs commands, which this baseline does not allow (allow_commands)"
                    raise AskError(f"{wish.origin}: {wish.check} {why}")
                questions = [_allowed(section, question, baseline) for question in asked]
                questions_by_section.setdefault(section, {}).update(
                    {_text(question): question for question in questions}
                )
    count = sum(map(len, questions_by_section.values()))
    if count > ASKS:
        raise AskError(
            f"the baselines name {count} kernel parameters, units, files and commands together, "
            f"and the probe reads {ASKS}; judge with fewer at a time (-b)"
        )
    if (
        sum(
            len(json.dumps(each))
            for asked in questions_by_section.values()
            for each in asked.values()
        )
        > WHOLE
    ):
        raise AskError(
            f"what the baselines ask for is more than {WHOLE >> 10} KiB; "
            "judge with fewer at a time (-b)"
        )
    return {
        section: tuple(each for _, each in sorted(asked.items()))
        for section, asked in sorted(questions_by_section.items())
    }


def asks_each(
    context: VetContext, *, fixes: bool = False, commands: bool = True
) -> Callable[[Host], Mapping[str, Asked]]:
    """Like `asks`, for one host: only for the baselines that may fit it, so that no other baseline
    makes nodevet read something or run a command there. Hosts with the same baselines share the
    answer. Raises AskError at once, never later."""
    asks(context, fixes=fixes, commands=commands)

    @cache
    def asks_of(places: tuple[int, ...]) -> Mapping[str, Asked]:
        narrowed = replace(context, baselines=tuple(context.baselines[place] for place in places))
        return asks(narrowed, fixes=fixes, commands=commands)

    def host_asks(host: Host) -> Mapping[str, Asked]:
        chosen = context.chosen is not None
        listed = enumerate(context.baselines)
        return asks_of(tuple(place for place, one in listed if chosen or may_fit(one, host)))

    return host_asks


def sections_of(
    context: VetContext, checks: Collection[str] | None = None
) -> frozenset[str] | None:
    """The sections that these baselines or these checks read; None: all of them, since the sections
    of a project's own check are not known for sure."""
    own = context.catalog.own_checks
    baselines = (*context.baselines, *context.shipped_baselines())
    sections = set(ALWAYS)
    for name in {wish.check for baseline in baselines for wish in baseline.expectations}:
        if checks is not None and name not in checks:
            continue
        if name in own:
            return None
        sections |= context.catalog.check(name).sections
    return frozenset(sections)


def judges_by(context: VetContext, section: str) -> bool:
    """Whether one of these baselines judges by this section. It does not if the section only
    explains a finding, or if a check that asks it for names has none to ask for."""
    baselines = (*context.baselines, *context.shipped_baselines())
    wishes = [wish for baseline in baselines for wish in baseline.expectations]
    if any(wish.check in context.catalog.own_checks for wish in wishes):
        return True
    return any(
        _judges_by(context.catalog.check(wish.check), wish.params, section) for wish in wishes
    )


def _judges_by(check: Check, params: Any, section: str) -> bool:
    reads = any(path.partition(".")[0] == section for path in check.reads)
    return reads and (check.asks is None or section in check.asks(params))


def sections_to_fix(
    context: VetContext, checks: Collection[str] | None = None
) -> frozenset[str] | None:
    """Like `sections_of`, with what the fixes of these checks read, and TO_CHANGE."""
    read = sections_of(context, checks)
    wishes = [wish for baseline in context.baselines for wish in baseline.expectations]
    fixed = [wish for wish in wishes if checks is None or wish.check in checks]
    if read is None or {wish.check for wish in fixed} & {*context.catalog.own_fixes}:
        return None
    asked = {
        section for wish in fixed for section, _ in _check_asks(context.catalog, wish, fixes=True)
    }
    return read | asked | TO_CHANGE


def _allowed(section: str, asked: str | Question, baseline: Baseline) -> str | Question:
    """A question about a file says whether its baseline allows the text of private files."""
    if section != "files" or isinstance(asked, str):
        return asked
    question = {key: value for key, value in asked.items() if key != "private"}
    return {**question, "private": True} if baseline.allow_file_text else question


def _text(question: str | Question) -> str:
    return (
        question
        if isinstance(question, str)
        else msgspec.json.encode(question, order="sorted").decode()
    )


def _check_asks(catalog: Catalog, wish: Expectation, fixes: bool) -> list[tuple[str, Asked]]:
    """The questions of the check, and of its fix even if the baseline does not allow it: a plan
    may."""
    fix = catalog.fix(wish.check) if fixes else None
    questions = _called(catalog.check(wish.check).asks, catalog.path(wish.check), wish.params)
    if fix is not None:
        questions += _called(fix.asks, catalog.fix_path(wish.check), wish.params)
    return questions


def _called(
    asks: Callable[[Any], Mapping[str, Asked]] | None, path: Path, params: Any
) -> list[tuple[str, Asked]]:
    if asks is None:
        return []
    try:
        questions = typed.convert(asks(params), dict[str, Asked])
        long = next(
            (
                question
                for some in questions.values()
                for question in some
                if len(_text(question)) > LONGEST
            ),
            None,
        )
        if long is not None:
            raise ValueError(f"a question of more than {LONGEST} characters")
    except Exception as error:  # a fault in a user's own check or fix
        raise AskError(f"{path}: asks failed: {type(error).__name__}: {error}") from error
    return list(questions.items())
