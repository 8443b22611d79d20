"""A systemd unit: whether it is enabled, running and masked."""

from nodevet.resource.core import Action


class SetUnit(Action, frozen=True, kw_only=True, tag="unit"):
    """The state of a systemd unit; None leaves that part as it is."""

    name: str
    enabled: bool | None = None
    running: bool | None = None
    restart: bool = False  # if it runs; systemd reads its files again before, always
    masked: bool | None = None
