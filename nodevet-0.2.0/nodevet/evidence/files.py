"""Section files."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord
from nodevet.evidence.questions import TextAnswers


class AskedFile(Record, frozen=True, kw_only=True):
    """A file as stat(2) reports it, following links, and the answers to questions about its
    text.
    """

    path: Text  # as it was asked for
    exists: bool | None = None
    kind: Text | None = None  # file, directory, socket, ...
    mode: Text | None = None  # permissions in octal: 0644
    uid: int | None = None
    gid: int | None = None
    owner: Text | None = None  # the name of uid
    group: Text | None = None  # the name of gid
    sha256: Text | None = None  # of its content in hex, if that was asked
    matches: TextAnswers | None = None


class Files(SectionRecord, frozen=True, kw_only=True):
    """The files that were asked for."""

    unique = ("files[].path", "files[].matches[].kind+text")

    files: Annotated[tuple[AskedFile, ...], bounds.ASKED] | None = None
