"""A command of nodevet, run in this process as its program does."""

import io
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from nodevet import cli


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def nodevet(*words: str | Path) -> Said:
    out, err = io.StringIO(), io.StringIO()
    handler, argv = signal.getsignal(signal.SIGTERM), sys.argv
    sys.argv = ["nodevet", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)
    assert isinstance(ended.value.code, int)
    return Said(ended.value.code, out.getvalue(), err.getvalue())
