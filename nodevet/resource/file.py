"""A file of the disk."""

from nodevet.resource.core import Action


class WriteFile(Action, frozen=True, kw_only=True, tag="file"):
    """A file has this content, mode and owner, or does not exist."""

    path: str
    content: str | None  # None: removed
    mode: int = 0o644
    owner: int = 0  # uid
    group: int = 0  # gid
