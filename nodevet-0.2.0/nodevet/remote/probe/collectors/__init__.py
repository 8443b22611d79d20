"""One file per section of the evidence: `collect(root, request)` returns its data.

See nodevet.remote.probe.sections for what else it may declare.
"""
