"""Commands for one GPU name it by its PCI bus id or UUID: its number shifts if a GPU is lost."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import fail

ROOT = Path(__file__).parents[2]
FOLDERS = ("checks", "fixes", "nodevet", "docs", "integrations", "packages", "share", "baselines")
KINDS = {".py", ".md", ".yaml", ".yml", ".jinja", ".sh", ".service", ".1"}
OTHERS = ("nodevet/remote/managers/", "docs/captures")
"""Examples of what others write, and captured outputs."""
CHANGES = re.compile(
    r"\s(-r|-pm|-pl|-e|-mig|-c|-ac|-rac|-lgc|-rgc|-lmc|-rmc|--gpu-reset|--power-limit)\b"
)
BY_ID = re.compile(
    r"\s(-i|--id)[ =]"
    r"(BUS_ID|UUID|GPU-|[0-9A-F]{4,8}:[0-9A-F]{2}:|GPU WORDS|\{(BUS_ID|gpus?)\}|\"?\$(gpu|on|off)"
    r"|‹each GPU)"
)
OF_ALL = "` without `-i`"


def commands(text: str) -> Iterator[str]:
    """Each command of nvidia-smi, to the end of its words, with what follows the command."""
    for match in re.finditer(r"nvidia-smi((?!nvidia-smi)[^`';|\n]|\n(?!\n))*", text):
        words = " ".join(match[0].split())
        yield words + text[match.end() : match.end() + len(OF_ALL)].replace("\n", " ")


def is_safe(command: str) -> bool:
    words, _, rest = command.partition("`")
    return not CHANGES.search(words) or bool(BY_ID.search(words)) or f"`{rest}" == OF_ALL


def files() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and not str(path.relative_to(ROOT)).startswith(OTHERS):
                yield path


def test_every_command_that_changes_a_gpu_names_it_by_bus_id_or_uuid() -> None:
    unsafe = [
        f"{path.relative_to(ROOT)}: {command}"
        for path in files()
        for command in commands(path.read_text(encoding="utf-8"))
        if not is_safe(command)
    ]
    assert unsafe == []


@pytest.mark.parametrize(
    "text",
    [
        "`nvidia-smi -r -i 0`",
        "`nvidia-smi --gpu-reset`",
        "`nvidia-smi\n--gpu-reset -i N`",
        "`nvidia-smi -pl 700`",
        "nvidia-smi -i 3 -pm 1",
    ],
)
def test_a_command_with_a_number_or_for_every_gpu_is_unsafe(text: str) -> None:
    assert [is_safe(command) for command in commands(text)] == [False]


def test_advice_on_one_gpu_names_its_bus_id() -> None:
    gpu = Gpu(index=3, bus_id="0000:1b:00.0")
    advice = "reset it (`nvidia-smi --gpu-reset -i BUS_ID`)"
    finding = fail(subject_of(gpu), advice=advice)
    assert finding.own_advice == "reset it (`nvidia-smi --gpu-reset -i 0000:1b:00.0`)"
    assert fail(subject_of(Gpu(index=3)), advice=advice).own_advice == advice
