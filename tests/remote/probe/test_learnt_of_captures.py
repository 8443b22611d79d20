"""What checks of CPUs and memory learn of a real machine, that machine is."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Value, Verdict
from nodevet.remote.probe.children import gather

CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures"
ARCHIVES = sorted(
    str(path.relative_to(CAPTURES))
    for folder in ("sysfs/hwloc", "sysfs/ghw", "copyleft/sysfs/util-linux")
    for path in (CAPTURES / folder).glob("*.tar.*")
)
pytestmark = pytest.mark.skipif(not ARCHIVES, reason=f"no captures in {CAPTURES}")
CATALOG = Catalog()
CHECKS = (
    "cpu_frequency",
    "cpu_topology",
    "hugepages",
    "kernel_cmdline",
    "memory_size",
    "numa_topology",
    "smt",
)


@pytest.fixture
def read(capture: Callable[[str], str]) -> Callable[[str], Evidence]:
    def evidence(archive: str) -> Evidence:
        wanted = sorted(set().union(*(CATALOG.check(name).sections for name in CHECKS)))
        found = gather(wanted, capture(archive), {"whole_machine": True}, 30.0)
        return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": found}))

    return evidence


def learnt(name: str, evidence: Evidence) -> Value:
    check = CATALOG.check(name)
    want = check.learn(evidence) if check.learn else None
    return want if want is None or isinstance(want, dict) else {str(check.params.bare): want}


@pytest.mark.parametrize("archive", ARCHIVES or [""])
def test_no_machine_fails_the_values_learnt_from_it(
    archive: str, read: Callable[[str], Evidence]
) -> None:
    evidence = read(archive)
    for name in CHECKS:
        fields = learnt(name, evidence)
        if fields is not None:
            params = params_of(CATALOG.check(name), fields)
            assert params is not None, (name, fields)
            findings = list(CATALOG.check(name).judge(evidence, params))
            assert findings
            wrong = [each for each in findings if each.verdict is Verdict.FAIL]
            assert wrong == [], (name, fields)


@pytest.mark.parametrize(
    ("archive", "nodes", "sockets", "cores"),
    [  # as hwloc's own maintainers name them: packages, nodes, cores
        ("128arm-2pa2n8cluster4co.tar.bz2", 4, 2, 128),
        ("16amd64-8n2c.tar.bz2", 8, 8, 16),
        ("32intel64-2p8co2t+8ve.tar.bz2", 2, 2, 16),
        ("40intel64-2g2n4c+pcilocality.tar.bz2", 4, 4, 40),
    ],
)
def test_learnt_topology_agrees_with_hwloc(
    archive: str, nodes: int, sockets: int, cores: int, read: Callable[[str], Evidence]
) -> None:
    evidence = read(f"sysfs/hwloc/{archive}")
    told = learnt("numa_topology", evidence)
    assert told["nodes"] == nodes
    said = learnt("cpu_topology", evidence)
    assert (said["sockets"], said["cores"]) == (sockets, cores)
