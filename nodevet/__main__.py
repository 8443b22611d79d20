"""`nodevet`, and `python -m nodevet`."""

import faulthandler
import gc
import os
import sys
from typing import NoReturn

from nodevet.last_verdict import is_asked, recall

GARBAGE = 100_000  # objects between collections: starting makes many, and little garbage


def main() -> NoReturn:
    """Run a command; what a scheduler asks every minute is answered without, if it can be."""
    if sys.stderr is not None:  # else its descriptor may be another file's by then
        faulthandler.enable(2)  # what crashed says where
    arguments = sys.argv[1:]
    if arguments[:1] == ["check"] and is_asked(arguments):
        text = recall(arguments)
        if text is not None and _written(text):
            sys.exit(0)
    gc.set_threshold(GARBAGE)
    # it would look for them in every distribution that is installed, each time
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from nodevet.cli import main as run

    try:
        run()
    finally:
        gc.freeze()  # the process ends: nothing needs to be collected any more


def _written(text: bytes) -> bool:
    """False if nothing could be written; the command says why."""
    try:
        while text:
            text = text[os.write(1, text) :]
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
