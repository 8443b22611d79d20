"""All that runs on a node: standard library and pynvml, Python 3.6 syntax.

It is shipped over SSH as source, answers one request and is gone. It imports nothing of nodevet
outside this package, and it never changes a setting.
"""
