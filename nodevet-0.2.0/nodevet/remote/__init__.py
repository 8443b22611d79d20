"""What runs on a node: standard library and pynvml, Python 3.6 syntax.

nodevet ships it over SSH as source. It answers one request and exits, imports nothing of nodevet
outside this package, and never changes a setting.
"""
