"""What looks closer at a node before a fix, and holds its lock; it never changes a setting.

Shipped with nodevet.remote.probe, whose modules it uses: standard library, Python 3.6 syntax.
"""
