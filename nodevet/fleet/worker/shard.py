"""The program of a shard: `python -I -m nodevet.fleet.worker.shard`, an order on stdin.

gevent must be patched in before anything else is imported, so this file does
that and hands over.
"""

import sys
from importlib import metadata

from gevent import monkey

# At each of its 25 patching steps gevent asks every installed package whether it
# wants to be told. That reads some thousand files, and none does.
_entry_points = metadata.entry_points
metadata.entry_points = lambda **_: metadata.EntryPoints()  # type: ignore[assignment]
monkey.patch_all()
metadata.entry_points = _entry_points

# paramiko.config imports invoke, half of paramiko's import time, for a use that
# pyinfra replaces with its own.
sys.modules["invoke"] = None  # type: ignore[assignment]

from nodevet.fleet.worker.batch import main  # noqa: E402

if __name__ == "__main__":
    main()
