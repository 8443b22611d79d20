"""Can a node feed its GPUs? A training step's stages side by side: the slowest sets the pace. Pure.

`workload` is what a person says of a job, `node` what the evidence says of the machine, `model` the
arithmetic on both, `advice` the same arithmetic on a changed input, `answer` all of it together.
What is not known is an interval without an end, so that it never becomes a number.
"""
