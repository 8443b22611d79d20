"""zstd of the standard library, which Python has from 3.14; before, its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import *  # noqa: F403
else:
    from backports.zstd import *  # noqa: F403
