"""A small catalog of its own, and baselines written to a folder."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from nodevet.baseline import BaselineErrors, lint, load
from nodevet.checking.catalog import Catalog
from nodevet.evidence.core import SCHEMA
from nodevet.evidence.document import Evidence, decode
from nodevet.model.baseline import Baseline

CHECKS = {
    "link": '''
        """The link is as fast as it should be."""
        from typing import Literal
        from nodevet.model import Check, CheckParams, ok

        class Link(CheckParams):
            """`link: {generation: 5, width: 16}`"""
            generation: Literal[1, 2, 3, 4, 5, "max"]
            width: Literal[1, 2, 4, 8, 16, 32] = 16

        CHECK = Check(params=Link, reads=("gpu.gpus[].pcie_width",), judge=lambda *_: iter([ok()]))
        ''',
    "version": '''
        """The version is right."""
        from typing import ClassVar
        from nodevet.model import Check, Severity, CheckParams, ok

        class Version(CheckParams):
            """`version: ">=550"`"""
            bare: ClassVar[str] = "version"
            version: str
            strict: bool = True

        CHECK = Check(
            params=Version, reads=("gpu.driver_version",), judge=lambda e, w: iter([ok()]),
            severity=Severity.WARNING,
        )
        ''',
    "number": '''
        """So many of them."""
        from typing import Annotated, ClassVar
        from msgspec import Meta
        from nodevet.model import Check, CheckParams, ok

        class Number(CheckParams):
            """`number: 8`"""
            bare: ClassVar[str] = "count"
            count: Annotated[int, Meta(ge=1, le=64)] | None = None
            minimum: Annotated[int, Meta(ge=1)] | None = None

            def __post_init__(self):
                if (self.count is None) == (self.minimum is None):
                    raise ValueError("give either count or minimum; not both")

        CHECK = Check(params=Number, reads=("gpu.count",), judge=lambda e, w: iter([ok()]))
        ''',
    "switch": '''
        """It is on or off."""
        from typing import ClassVar
        from nodevet.model import Check, CheckParams, ok

        class Switch(CheckParams):
            """`switch: true`"""
            bare: ClassVar[str] = "enabled"
            enabled: bool

        CHECK = Check(params=Switch, reads=("host.kernel",), judge=lambda e, w: iter([ok()]))
        ''',
    "faulty": '''
        """Its CheckParams has a fault of its own."""
        from typing import ClassVar
        from nodevet.model import Check, CheckParams, ok

        class Faulty(CheckParams):
            bare: ClassVar[str] = "name"
            name: str

            def __post_init__(self):
                {"a": "b"}[self.name]

        CHECK = Check(params=Faulty, reads=("host.kernel",), judge=lambda e, w: iter([ok()]))
        ''',
    "zones": '''
        """Zones, by number."""
        from typing import Annotated, ClassVar, Literal
        from msgspec import Meta, Struct
        from nodevet.model import Check, CheckParams, ok

        class Zone(Struct, frozen=True, forbid_unknown_fields=True):
            cpus: Annotated[str, Meta(pattern="^[0-9-]+$")]

        class Zones(CheckParams):
            """`zones: platform`"""
            bare: ClassVar[str] = "zones"
            zones: Literal["platform"] | dict[Annotated[str, Meta(pattern="^[0-9]+$")], Zone]
            tolerance: float | Literal["none"] = 0

        CHECK = Check(params=Zones, reads=("numa.nodes[].id",), judge=lambda e, w: iter([ok()]))
        ''',
}


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("checks")
    for name, source in CHECKS.items():
        (folder / f"{name}.py").write_text(dedent(source))
    return Catalog([folder])


class Shelf:
    """A folder of baselines; messages name its files by their bare name."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.folder = folder
        self.catalog = catalog

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"{name}.yaml").write_text(dedent(text))

    def load(self, *names: str) -> tuple[Baseline, ...]:
        return load(names, folders=[self.folder], catalog=self.catalog)

    def problems(self, *names: str) -> list[str]:
        with pytest.raises(BaselineErrors) as caught:
            self.load(*names)
        assert str(caught.value) == "\n".join(map(str, caught.value.problems))
        return [str(problem) for problem in caught.value.problems]

    def lint(self, *names: str, today: date = date(2026, 1, 15)) -> list[str]:
        found = lint(names, folders=[self.folder], catalog=self.catalog, today=today)
        return [str(problem) for problem in found]


@pytest.fixture
def shelf(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.chdir(tmp_path)
    return Shelf(tmp_path, catalog)


@pytest.fixture
def problems_of(shelf: Shelf) -> Callable[[str | bytes], list[str]]:
    """Load one file `x.yaml` with this content and give its problems."""

    def load_one(content: str | bytes) -> list[str]:
        data = content if isinstance(content, bytes) else content.encode()
        (shelf.folder / "x.yaml").write_bytes(data)
        return shelf.problems("x")

    return load_one


@pytest.fixture
def gpu_node() -> Callable[[int, str, str], Evidence]:
    """Evidence of a node with so many GPUs of this device and subsystem id."""

    def build(count: int, device: str, subsystem: str) -> Evidence:
        gpus = [
            {
                "index": index,
                "bus_id": f"0000:{index + 1:02x}:00.0",
                "pci_device": device,
                "pci_subsystem": subsystem,
            }
            for index in range(count)
        ]
        functions = [
            {
                "address": gpu["bus_id"],
                "class_code": "030200",
                "vendor": "10de",
                "device": device[5:],
                "subsystem_vendor": subsystem[:4],
                "subsystem_device": subsystem[5:],
            }
            for gpu in gpus
        ]
        sections = {
            "gpu": {"status": "ok", "data": {"gpus": gpus}},
            "pci": {"status": "ok", "data": {"functions": functions}},
        }
        return decode(msgspec.json.encode({"schema": SCHEMA, "probe": "1", "sections": sections}))

    return build
