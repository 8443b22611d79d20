"""Section framework: what the PyTorch of named interpreters reports about CUDA."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class Interpreter(Record, frozen=True, kw_only=True):
    """A Python that was run to import torch."""

    name: Text  # as it was asked for: its path, or USER:/PATH
    user: Text | None = None  # as whom
    failed: Text | None = None  # the last line of a traceback; "" if torch was imported
    version: Text | None = None  # torch.__version__: 2.4.0+cu124
    cuda: Text | None = None  # torch.version.cuda: 12.4; "" of a build for CPUs
    available: bool | None = None  # torch.cuda.is_available()
    devices: int | None = None  # torch.cuda.device_count()


class Frameworks(SectionRecord, frozen=True, kw_only=True):
    """The interpreters that were asked for."""

    unique = ("interpreters[].name",)

    interpreters: Annotated[tuple[Interpreter, ...], bounds.ASKED] | None = None
