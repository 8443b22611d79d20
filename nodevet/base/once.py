"""Keep the answer of a call, also under threads: `functools.cache` may begin a call many times."""

import threading
from collections.abc import Callable
from functools import cache
from typing import TypeVar

Answer = TypeVar("Answer")


def call_once(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """`call`, made when its answer is first needed, and only once; other threads wait for it."""
    kept, turn = cache(call), threading.Lock()

    def answer() -> Answer:
        with turn:
            return kept()

    return answer
