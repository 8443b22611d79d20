"""The program of a worker's child: `python -I -m nodevet.fleet.worker.serve`.

Importing the shard's program patches gevent before anything else is imported.
"""

from nodevet.fleet.worker import shard  # noqa: F401
from nodevet.fleet.worker.requests import main

if __name__ == "__main__":
    main()
