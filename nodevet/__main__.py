"""`nodevet`, and `python -m nodevet`."""

import atexit
import faulthandler
import gc
import os
import sys

from nodevet.base.last_verdict import is_asked, recall

TYPE_CHECKING = False  # to import typing takes as long as an empty Python
if TYPE_CHECKING:
    from typing import NoReturn

GARBAGE = 100_000  # objects between collections: starting makes many, and little garbage


def main() -> "NoReturn":
    """Run a command; what a scheduler asks every minute is answered without, if it can be."""
    if sys.stderr is not None:  # else its descriptor may be another file's by then
        faulthandler.enable(2)  # what crashed says where
    arguments = sys.argv[1:]
    if arguments[:2] == ["pass", "verify"]:
        from nodevet.passes.on_node.verify import answer

        code = answer(arguments[2:])
        if code is not None:
            _end(code)
            sys.exit(code)
    text = _kept_answer(arguments)
    if text is not None and _write_text(text):
        sys.exit(0)
    gc.set_threshold(GARBAGE)
    from nodevet.cli import main as run

    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end(ended.code)
        raise


def _kept_answer(arguments: list[str]) -> bytes | None:
    """What a kept pass answers; None: run the command."""
    if arguments[:1] == ["slurm"]:
        from nodevet.slurm.kept import answer

        return answer(arguments)
    return recall(arguments) if arguments[:1] == ["check"] and is_asked(arguments) else None


def _end(code: int) -> None:
    """End the process at once: to take the interpreter apart takes longer than to judge a node.

    Returns if work remains: a thread that still runs, or output that cannot be written.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:
        return  # Python says so, and ends with 120
    os._exit(code)


def _write_text(text: bytes) -> bool:
    """False if nothing could be written; the command says why."""
    try:
        while text:
            text = text[os.write(1, text) :]
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
