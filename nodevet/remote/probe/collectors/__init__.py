"""One file per section of the evidence: `collect(root, request)` returns its data.

A section exists because its file does; nodevet.remote.probe.sections says what else it declares.
"""
