"""What is wrong at a place of a document."""

import msgspec

from nodevet.base.problems import Place


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a node, before it is known in which file it stands."""

    path: tuple[str | int, ...]  # from the node that was read
    place: Place
    message: str
    advice: str = ""
    missing: bool = False  # a field is not there; another file may hold it
