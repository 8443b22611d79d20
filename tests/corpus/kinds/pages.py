"""Touches more mapped pages than its cgroup may hold."""

from load import pages

from tests.corpus.kind import Kind

KIND = Kind(
    label="memory-pressure",
    second="storage-bound",
    action="a higher limit, fewer workers",
    needs="memory limit",
    backgrounds=("quiet", "loaded", "other job"),
    by_background={"loaded": ("memory-pressure + CPUs taken by others", "memory-pressure")},
)


run = pages
