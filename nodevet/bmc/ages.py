"""How young an entry of a BMC's event log may be if its time is missing or cannot be right. Pure.

Ages are seconds by the BMC's own clock, which may have been wrong when it logged an entry.
"""

from collections.abc import Sequence

Ages = Sequence[int | None]

SLACK = 300  # seconds that the times of one log may be out of order, or ahead
FEW = 4  # different times; so many in one order show the order of a log
LONGEST_ID = 9  # digits; bmcweb's longer ids are times


def least_ages(ages: Ages, ahead: float = 0.0) -> list[int | None]:
    """For each entry of a log, in the order in which they were logged, how young it may be; None if
    its age is right. `ahead`: seconds that the BMC's clock is ahead now; before that it may have
    been right.

    >>> least_ages([7200, 250_000_000, 3600, None, 60])
    [None, 3600, None, 60, None]
    >>> least_ages([250_007_200, 60], ahead=250_000_000)
    [7200, None]
    """
    least: list[int | None] = []
    bound = 0  # an entry is no younger than one that was logged later
    for age, is_wrong in zip(reversed(ages), reversed(_contradictions(ages)), strict=True):
        if age is None or age < -SLACK or is_wrong:
            least.append(bound)
            continue
        is_doubtful = ahead > SLACK and age >= ahead - SLACK
        bound = max(bound, int(age - ahead) if is_doubtful else age)
        least.append(bound if is_doubtful else None)
    return least[::-1]


def least_ages_of_log(ids: Sequence[str], ages: Ages, ahead: float = 0.0) -> list[int | None]:
    """As `least_ages`, for entries in the order in which a Redfish service lists them. It may list
    the oldest or the newest one first, and number them in either order. Where that does not show,
    an entry that is wrong in one of these orders counts as wrong.

    >>> least_ages_of_log(["3", "2", "1"], [250_000_000, 3600, 7200])
    [0, None, None]
    """
    places = list(range(len(ids)))
    numbers = [int(id) for id in ids if id.isascii() and id.isdigit() and len(id) <= LONGEST_ID]
    is_numbered = len(set(numbers)) == len(ids)
    if is_numbered:
        places.sort(key=numbers.__getitem__)
    orders = [places, places[::-1]]
    clean = [order for order in orders if not any(_contradictions([ages[at] for at in order], 0))]
    is_shown = len(set(ages) - {None}) >= FEW
    chosen = (clean[:1] if is_shown else []) or (orders[:1] if is_numbered else orders)
    result: list[int | None] = [None] * len(ids)
    for order in chosen:
        for at, least in zip(order, least_ages([ages[at] for at in order], ahead), strict=True):
            known = result[at]
            if least is not None:
                result[at] = least if known is None else min(known, least)
    return result


def _contradictions(ages: Ages, slack: int = SLACK) -> list[bool]:
    """Whether each entry says that it is older than an entry that was logged before it."""
    youngest: int | None = None
    found = []
    for age in ages:
        found.append(age is not None and youngest is not None and age > youngest + slack)
        if age is not None and age >= -SLACK and not found[-1]:
            youngest = age if youngest is None else min(age, youngest)
    return found
