"""How this nodevet is run again, by a unit of systemd."""

import os
import sys
from pathlib import Path


def own_program() -> tuple[str, ...]:
    """The command line of this nodevet, whose first word is an absolute path. A link stays as it
    is: it may lead to another version later."""
    script = Path(sys.argv[0]).absolute()
    if script.suffix != ".py" and script.is_file() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "nodevet")
