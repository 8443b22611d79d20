"""How old the evidence may be that a run judges."""

import msgspec


class MaxAge(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum age of evidence in seconds; `now` in seconds since 1970 UTC."""

    now: float
    most: float
