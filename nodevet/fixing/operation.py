"""Fixes as pyinfra operations, without pyinfra if only a plan is made."""

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

from nodevet import resource
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
    """The commands of these actions. Raises pyinfra's OperationError for one that is never run."""
    from pyinfra.api.exceptions import OperationError

    try:
        yield from resource.perform(actions)
    except resource.ActionError as error:
        raise OperationError(str(error)) from error
