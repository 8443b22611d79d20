"""How old the evidence may be that a run judges."""

import msgspec


class MaxAge(msgspec.Struct, frozen=True, kw_only=True):
    """How old evidence may be that is judged. Seconds; `now` since 1970 UTC."""

    now: float
    most: float
