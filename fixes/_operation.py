"""Fixes as pyinfra operations, without pyinfra where only a plan is made."""

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

from nodevet.resource import Actions

Commands = Generator[Any, None, None]  # pyinfra's commands
Operation = Callable[..., Any]  # takes pyinfra's global arguments too: `_sudo=True`


def operation(function: Callable[..., Commands]) -> Operation:
    """pyinfra's `@operation(is_idempotent=False)`, put on when the function is called.

    `_inner` is the function itself, as pyinfra has it for operations within operations.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        from pyinfra.api.operation import operation as of_pyinfra

        made: Operation = of_pyinfra(is_idempotent=False)(function)
        return made(*args, **kwargs)

    call._inner = function  # type: ignore[attr-defined]
    return call


def perform(actions: Actions) -> Commands:
    """The commands of these actions."""
    from nodevet.fixes import _perform

    yield from _perform.perform(actions)
