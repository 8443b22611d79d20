"""A training step's stages side by side: the slowest sets the pace. Pure.

`workload` is what a person says of a job, `node` what the evidence says of the machine, `model` the
arithmetic on both, `setup` and `advice` the same arithmetic on a changed input. A value that nobody
knows is an interval without an end, so that it never becomes a number.
"""
