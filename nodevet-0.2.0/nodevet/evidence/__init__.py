"""The typed form of what a probe returns: a file for each section.

A value that could not be read is None, and its record's `errors` says why under the field's name:
an NVML error (`NVML_ERROR_NOT_SUPPORTED`), an errno (`ENOENT`), or a sentence.

Units are in the names: `_mw` milliwatt, `_mhz`, `_khz`, `_b` bytes, `_kb` KiB, `_c` degrees
Celsius, `_gts` GT/s per lane.

Every list, mapping and text has a bound, in nodevet.base.bounds with its reason: a section with
more does not decode.
"""
