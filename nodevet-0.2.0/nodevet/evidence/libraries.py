"""Section libraries: the driver's, and those that a baseline names, as the loader finds them."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord

LIBRARY_NAME = r"lib[A-Za-z0-9+._-]{1,100}\.so(\.[0-9]+)*"
"""A regular expression: a name as programs ask the loader for it, libnccl.so.2."""


class Library(Record, frozen=True, kw_only=True):
    """A shared library by name. /etc/ld.so.cache, then the loader's own folders."""

    name: Text  # libcuda.so.1
    path: Text | None = None  # the file that the loader would open; "" if there is none
    cached: bool | None = None  # whether /etc/ld.so.cache has it
    file: Text | None = None  # the same without links: .../libcuda.so.550.90.07
    version: Text | None = None  # the driver's, at the end of `file`; "" if it has none
    broken: Text | None = None  # why that file cannot be loaded: empty, truncated; "" if it can


class Libraries(SectionRecord, frozen=True, kw_only=True):
    """The driver's libraries are always read, others if they are asked for."""

    unique = ("libraries[].name",)

    libraries: Annotated[tuple[Library, ...], bounds.ASKED] | None = None
    # a container keeps the driver: /run/nvidia/driver of the GPU Operator, or GKE's folder
    driver_in_container: bool | None = None
