"""The program of a worker's child: `python -I -m nodevet.fleet.worker`.

gevent is patched in by the shard's program, before anything else is imported.
"""

from nodevet.fleet import shard  # noqa: F401
from nodevet.fleet.worker_serve import main

if __name__ == "__main__":
    main()
