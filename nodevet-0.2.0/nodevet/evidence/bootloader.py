"""Section bootloader."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class CommandLineSetting(Record, frozen=True, kw_only=True):
    """A line that sets the kernel's command line for update-grub."""

    file: Text  # /etc/default/grub, or a file of /etc/default/grub.d
    line: int
    name: Text  # GRUB_CMDLINE_LINUX or GRUB_CMDLINE_LINUX_DEFAULT
    text: Text  # what stands after =, for a shell


class Bootloader(SectionRecord, frozen=True, kw_only=True):
    """Which boot loader the node has, and where the kernel's command line comes from."""

    unique = ("settings[].file+line",)

    # of update-grub, grubby, kernelstub, sdbootutil, grub2-mkconfig: those that are installed
    programs: Annotated[tuple[Text, ...], bounds.ASKED] | None = None
    files: Annotated[tuple[Text, ...], bounds.ASKED] | None = None  # configurations that exist
    # the different command lines in /boot/grub/grub.cfg, without those of recovery entries
    entries: Annotated[tuple[Text, ...], bounds.ASKED] | None = None
    # in the order in which update-grub reads them
    settings: Annotated[tuple[CommandLineSetting, ...], bounds.ASKED] | None = None
    # why GRUB cannot boot an entry for one boot only; empty if it can
    once: Text | None = None
    newer: Annotated[tuple[Text, ...], bounds.ASKED] | None = None  # changed after grub.cfg
