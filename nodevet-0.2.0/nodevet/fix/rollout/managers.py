"""What a person can do if something else on the node manages a setting."""

from collections.abc import Collection, Iterable

TUNED = "unit tuned.service "


def advice(managers: Iterable[str], fixes: Collection[str], *, place: str = "`fix`") -> str:
    """`managers`: as the node names them; `place`: where the baseline lists `fixes`.

    >>> advice(["/etc/cron.d/x:1"], ["sysctl"])
    'disable it there, or drop sysctl from `fix`'
    """
    drop = f"drop {', '.join(fixes)} from {place}"
    if not any(manager.startswith(TUNED) for manager in managers):
        return f"disable it there, or {drop}"
    return (
        "let tuned set it: in /etc/tuned/site/tuned.conf write `include=` and the profile that "
        "`tuned-adm active` shows under [main], add the value, and run `tuned-adm profile site`; "
        f"or {drop}"
    )
