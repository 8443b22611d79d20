"""The program of a shard: `python -I -m nodevet.fleet.worker.shard`, an order on stdin.

gevent must be patched before anything else is imported, so this file does that first.
"""

from importlib import metadata

from gevent import monkey

# At each of its 25 patching steps gevent looks for plug-ins in every installed package. That reads
# some thousand files, and none has one.
_entry_points = metadata.entry_points
metadata.entry_points = lambda **_: metadata.EntryPoints()  # type: ignore[assignment]
monkey.patch_all()
metadata.entry_points = _entry_points

from nodevet.fleet.worker.batch import main  # noqa: E402

if __name__ == "__main__":
    main()
