"""The stages of a training step run side by side, and the slowest sets the pace. Pure.

`workload` is a person's description of a job, `node` the evidence about the machine. `setup` joins
both, `model` is the arithmetic, and `advice` repeats it with a changed input. An unknown value is
an interval without an end, so that it never becomes a number.
"""
