"""What runs on the node: standard library and pynvml, Python 3.6 syntax.

It is shipped over SSH as source, reads, prints one JSON document and is gone.
It imports nothing of nodevet outside this package, and it never writes.
"""
