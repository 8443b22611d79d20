"""Scenario YAML becomes nodes; what cannot be is said with file, line and column."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.remote.probe.cpulist import parse_cpulist
from nodevet_sim.description import LogLine, SwapArea
from nodevet_sim.scenario import (
    LoadedScenario,
    NodeSpec,
    ScenarioError,
    changed,
    describe,
    find,
    hidden_by,
    load,
    load_scenario,
    shipped_scenarios,
)
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import Origin
from nodevet_sim.state import of_gpu, values

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
POLICY = "sys/devices/system/cpu/cpufreq/policy0"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: str) -> Path:
        path = tmp_path / "site.yaml"
        path.write_text(text)
        return path

    return put


@pytest.fixture
def spec(write: Write) -> Callable[[str], NodeSpec]:
    """One node with these keys, in YAML's flow style."""

    def read(keys: str) -> NodeSpec:
        return load(write(f"sim: 1\nnodes:\n  n1: {{{keys}}}\n")).nodes["n1"]

    return read


@pytest.fixture
def captures() -> Path:
    if not CAPTURES.is_dir():
        pytest.skip(f"the captures of real machines are not here: {CAPTURES}")
    return CAPTURES


FLEET = """\
sim: 1
name: demo
title: A fleet
templates:
  h100: {gpus: h100-sxm, cores: 2, nvml: {driver_version: 550.90.07}}
nodes:
  gpu[001-003]: {template: h100}
  gpu004:
    template: h100
    faults: [{pcie-width: {gpu: 3, width: 8}}, governor-powersave]
    nvml: {gpu.3.power_limit_mw: 500000, gpu.*.persistence_mode: false}
    files: {/sys/class/dmi/id/sys_vendor: Supermicro, /proc/cmdline: null}
    kernel_log: [{after: 120, level: err, text: "NVRM: Xid (PCI:0000:19:00): 63, x"}]
    load: [{gpus: [0, 1], cpus: 0-1, mems: 0, utilization: 90}]
  ws001: {gpus: rtx-4090}
  cpu001: {gpus: none, sockets: 4, cores: 2, smt: false}
"""


def test_a_fleet(write: Write) -> None:
    loaded = load(write(FLEET))
    assert (loaded.name, loaded.title) == ("demo", "A fleet")
    assert list(loaded.nodes) == ["gpu001", "gpu002", "gpu003", "gpu004", "ws001", "cpu001"]
    scenario = load_scenario(write(FLEET))
    nodes = {node.name: node for node in scenario.nodes}
    broken, desk, plain = nodes["gpu004"], nodes["ws001"], nodes["cpu001"]
    state = values(broken.state or "")
    assert state["driver_version"] == "550.90.07"
    assert state["nvml_version"] == "13.550.90.07"
    assert broken.files["sys/module/nvidia/version"] == "550.90.07\n"
    assert of_gpu(state, 3, "power_limit_mw") == "500000"
    assert {of_gpu(state, gpu, "persistence_mode") for gpu in range(8)} == {"0"}
    assert of_gpu(state, 3, "pcie_width") == "8"
    assert broken.files[f"{POLICY}/scaling_governor"] == "powersave\n"
    assert broken.files["sys/devices/virtual/dmi/id/sys_vendor"] == "Supermicro\n"
    assert broken.links["sys/class/dmi/id"] == "../../devices/virtual/dmi/id"
    assert "proc/cmdline" not in broken.files
    assert broken.kernel_log == (LogLine("NVRM: Xid (PCI:0000:19:00): 63, x", 120.0, 3),)
    (job,) = broken.load
    assert (job.gpus, job.cpus, job.mems, job.utilization_percent) == ((0, 1), "0-1", "0", 90)
    assert len(desk.device_nodes) == 5 and "nvidia-fabricmanager.service" not in desk.services
    assert (plain.state, plain.device_nodes, plain.services) == (None, (), ())
    assert plain.files["sys/devices/system/cpu/online"] == "0-7\n"
    assert plain.files["sys/devices/system/node/online"] == "0-3\n"
    assert plain.files["proc/modules"] == ""
    assert "proc/driver/nvidia/version" not in plain.files


def test_swap_is_turned_on_by_fstab(write: Write) -> None:
    areas = "[{name: /swap, kb: 8388604, used_kb: 4}, {name: /dev/sda2, kb: 40, priority: 5}]"
    text = f"sim: 1\nnodes:\n  n1: {{gpus: none, swap: {areas}}}\n  n2: {{gpus: none}}\n"
    one, none = load_scenario(write(text)).nodes
    assert one.swap == (SwapArea("/swap", 8388604, 4, None), SwapArea("/dev/sda2", 40, 0, 5))
    assert one.root_files["/etc/fstab"] == (
        "/swap none swap sw 0 0\n/dev/sda2 none swap sw,pri=5 0 0\n"
    )
    assert (none.swap, none.root_files["/etc/fstab"]) == ((), "")
    for node in (one, none):  # before any of it is on
        assert str(node.files["proc/swaps"]).startswith("Filename\t\t\t\tType")
        assert str(node.files["proc/swaps"]).count("\n") == 1
        assert "SwapTotal:             0 kB\n" in str(node.files["proc/meminfo"])


def test_no_two_nodes_have_the_same_gpu(write: Write) -> None:
    scenario = load_scenario(write(FLEET))
    known = [values(node.state or "") for node in scenario.nodes[:4]]
    for key in ("uuid", "serial"):
        assert len({of_gpu(state, gpu, key) for state in known for gpu in range(8)}) == 32
    again = load_scenario(write(FLEET))
    assert again == scenario


def test_proc_driver_nvidia_describes_each_gpu(spec: Callable[[str], NodeSpec]) -> None:
    node = describe(spec("gpus: {profile: t4, count: 2}"))
    places = [path for path in node.files if path.startswith("proc/driver/nvidia/gpus/")]
    assert len(places) == 2
    state = values(node.state or "")
    for gpu, place in enumerate(sorted(places)):
        text = str(node.files[place])
        assert str(of_gpu(state, gpu, "uuid")) in text and f"Device Minor: \t {gpu}\n" in text


def test_a_node_has_the_hardware_that_its_keys_describe(spec: Callable[[str], NodeSpec]) -> None:
    keys = (
        "gpus: {profile: l40s, count: 6}, sockets: 2, cores: 8, nics: 3, nvme: 5, "
        "numa: {per_socket: 2, memory_gb: 64, memory_only: 1, balancing: 1}, "
        "cpufreq: {driver: acpi-cpufreq, per: socket, governors: [ondemand, schedutil]}, "
        "governor: schedutil, cmdline: quiet"
    )
    node = describe(spec(keys))
    nodes = "sys/devices/system/node"
    assert node.files[f"{nodes}/online"] == "0-4\n"
    assert node.files[f"{nodes}/has_cpu"] == "0-3\n"
    assert node.files[f"{nodes}/node4/cpulist"] == "\n"
    assert node.files[f"{nodes}/node1/cpulist"] == "4-7,20-23\n"
    assert node.files[f"{nodes}/node1/distance"] == "12 10 21 21 21\n"
    assert "MemTotal:        67108864 kB" in str(node.files[f"{nodes}/node0/meminfo"])
    assert node.files["proc/sys/kernel/numa_balancing"] == "1\n"
    assert node.files[f"{POLICY}/related_cpus"] == "0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23\n"
    assert node.files[f"{POLICY}/scaling_governor"] == "schedutil\n"
    assert node.links["sys/devices/system/cpu/cpu31/cpufreq"] == "../cpufreq/policy8"
    assert node.files["proc/cmdline"] == "quiet\n"
    classes = [str(text) for path, text in node.files.items() if path.endswith("/class")]
    kinds = {code: sum(text.startswith(code) for text in classes) for code in ("0x02", "0x0108")}
    assert kinds == {"0x02": 3, "0x0108": 5}
    gpus = sorted(path for path, text in node.files.items() if text == "0x26b9\n")
    numa = [str(node.files[path.removesuffix("device") + "numa_node"]).strip() for path in gpus]
    assert numa == ["0", "0", "1", "2", "2", "3"]


WRONG = [
    ("", "the file is empty; begin with the line: sim: 1"),
    ("nodes: {}\n", ":1:1: sim: the format version is missing; begin with"),
    ("sim: 2\nnodes: {}\n", ":1:6: sim: this nodevet reads format version 1"),
    ("sim: 1\n", "nodes: `nodes` is missing"),
    ("sim: 1\nnode: {}\nnodes: {}\n", ":2:1: node: unknown key; did you mean nodes?"),
    ("sim: 1\nnodes: [a]\n", ":2:8: nodes: expected names with keys"),
    ("sim: 1\nnodes:\n  n1:\n", ":3:3: n1: it does not say which GPUs it has; write gpus:"),
    ("sim: 1\nnodes:\n  n[1-300]: {gpus: none}\n", ":3:3: nodes.n[1-300]: "),
    ("sim: 1\nnodes:\n  n_1: {gpus: none}\n", '"n_1" is not a valid name for a simulated node'),
    (
        "sim: 1\nnodes:\n  n[1-2]: {gpus: none}\n  n2: {gpus: none}\n",
        ":4:3: nodes: n2 is described ",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpus: h100}\n",
        ":3:14: nodes.n1.gpus: there is no such GPU profile; ",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpu: t4}\n",
        ":3:8: nodes.n1.gpu: is not a known key here; did",
    ),
    ("sim: 1\nnodes:\n  n1: {template: x}\n", ':3:8: nodes.n1.template: there is no template "x"'),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, cores: 0}\n",
        ":3:25: nodes.n1.cores: must be at least 1, not 0",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: {profile: t4, count: 65}}\n", "gpus.count: must be at most 64"),
    ("sim: 1\nnodes:\n  n1: {gpus: {profile: t4, xml: a}}\n", "give either profile or xml"),
    ("sim: 1\nnodes:\n  n1: {gpus: none, sockets: 32, cores: 512}\n", "a node has at most 4096"),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, faults: [pcie-widht]}\n",
        ":3:27: nodes.n1.faults[0]: there is no fault ",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, faults: [{pcie-width: {gpux: 3}}]}\n", "did you mean gpu?"),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, faults: [{pcie-width: {gpu: x}}]}\n",
        ":3:46: nodes.n1.faults[0].pcie-width.gpu: ",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, faults: [{pcie-width: {gpu: 9}}]}\n",
        ":3:27: n1.faults[0]: there",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, governor: warp}\n", ":3:18: n1.governor: the node offers "),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, nvml: {gpu.0.powr_limit_mw: 1}}\n",
        "did you mean power_limit_mw?",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, nvml: {gpu.4.lost: 1}}\n", "no GPU 4, but 4 of them"),
    ("sim: 1\nnodes:\n  n1: {gpus: none, nvml: {count: 1}}\n", "the node has no GPUs; remove nvml"),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, files: {/etc/passwd: x}}\n", "is not below /sys or /proc"),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, files: {/sys/../etc/passwd: x}}\n",
        "is not below /sys or /proc",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, files: {/sys/module/nvidia: x}}\n",
        "is a directory, or lies",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, files: {/proc/1/status: x}}\n",
        "/proc/1/status belongs to the real kernel and cannot be simulated",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, load: [{gpus: [4]}]}\n", "the node has no /dev/nvidia4"),
    (
        "sim: 1\nnodes:\n  n1: {gpus: t4, cores: 2, load: [{gpus: [0], cpus: 6-9}]}\n",
        "no cpus 8-9; the ",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: none, swap: [{name: swap, kb: 40}]}\n", "swap[0].name: "),
    (
        "sim: 1\nnodes:\n  n1: {gpus: none, swap: [{name: /s, kb: 40, used_kb: 41}]}\n",
        "more is used than the swap has",
    ),
    (
        "sim: 1\nnodes:\n  n1: {gpus: none, swap: [{name: /s, kb: 40}, {name: /s, kb: 41}]}\n",
        "n1.swap: two swap areas are named /s",
    ),
    ("sim: 1\nnodes:\n  n1: {gpus: {xml: no.xml}}\n", "no.xml: No such file or directory"),
    ("sim: 1\nnodes:\n  n1: {gpus: t4, tree: no.tar}\n", "no.tar: cannot be read as a capture"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_mistake_is_reported_with_its_file_and_line(text: str, words: str, write: Write) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(write(text))
    assert words in str(caught.value)
    assert all(str(problem).count("site.yaml") for problem in caught.value.problems)


def test_every_problem_is_reported_at_once(write: Write) -> None:
    text = "sim: 1\nnodes:\n  n1: {gpus: h100, cores: x}\n  n2: {gpu: t4}\n"
    with pytest.raises(ScenarioError) as caught:
        load(write(text))
    assert [problem.place.line for problem in caught.value.problems] == [3, 3, 4]


def test_a_node_overrides_its_template(write: Write) -> None:
    text = (
        "sim: 1\ntemplates:\n"
        "  t: {gpus: t4, cores: 4, faults: [slow], nvml: {gpu.0.lost: 1, gpu.1.lost: 1}}\n"
        "nodes:\n  a: {template: t}\n"
        "  b: {template: t, cores: 2, faults: [], nvml: {gpu.1.lost: 0}}\n"
    )
    loaded = load(write(text))
    first, second = (describe(loaded.nodes[name]) for name in ("a", "b"))
    assert (first.delay_s, second.delay_s) == (120, 0)
    assert second.files["sys/devices/system/cpu/online"] == "0-7\n"
    lost = [of_gpu(values(second.state or ""), gpu, "lost") for gpu in (0, 1)]
    assert lost == ["1", "0"]


def test_a_wrong_template_is_reported_with_its_place(write: Write) -> None:
    template = "  t: {gpus: t4,\n      faults: [{xid: {gpu: 9}}]}\n"
    text = f"sim: 1\ntemplates:\n{template}nodes: {{a: {{template: t}}}}\n"
    with pytest.raises(ScenarioError, match=r"site.yaml:4:16: a.faults\[0\]: there is no GPU 9"):
        load(write(text))


XML = "nvidia-smi-xml"


def test_a_node_from_xml(captures: Path, spec: Callable[[str], NodeSpec]) -> None:
    path = (captures / XML / "k8s-h100.xml").resolve()
    if not path.exists():
        pytest.skip("no such capture")
    node = describe(spec(f"gpus: {{xml: {path}}}, sockets: 2, nvml: {{gpu.*.persistence_mode: 0}}"))
    state = values(node.state or "")
    assert node.sources["gpus"] == str(path)
    count = int(state["count"])
    for gpu in range(count):
        address = of_gpu(state, gpu, "bus_id")
        assert f"sys/bus/pci/devices/{address}" in node.links
        assert of_gpu(state, gpu, "persistence_mode") == "0"
    assert (
        sum(path.startswith("/dev/nvidia") and path[11:].isdigit() for path in node.device_nodes)
        == count
    )
    assert node.files["sys/module/nvidia/version"] == f"{state['driver_version']}\n"


def test_all_xml_captures_become_nodes_that_can_break(captures: Path, write: Write) -> None:
    for path in sorted((captures / XML).glob("*.xml")):
        text = f"sim: 1\nnodes:\n  n1: {{gpus: {{xml: {path.resolve()}}}}}\n"
        spec = load(write(text)).nodes["n1"]
        described = describe(spec)
        state = values(described.state or "")
        assert int(state["count"]) == len(
            [link for link in described.links if link.startswith("sys/bus/pci/drivers/nvidia/")]
        )
        left = describe(changed(spec, "fault", "{gpu-missing: {gpu: 0}}"))
        assert values(left.state or "")["count"] == str(int(state["count"]) - 1)
        assert set(left.files) < set(described.files)


def test_a_captured_tree_alone_describes_what_it_has(
    captures: Path, spec: Callable[[str], NodeSpec]
) -> None:
    path = (captures / "sysfs/hwloc/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2").resolve()
    areas = "[sys/devices/system/cpu, sys/devices/system/node]"
    plain = describe(spec(f'gpus: h100-sxm, tree: {{path: "{path}", only: {areas}}}'))
    cpu = "sys/devices/system/cpu"
    online = str(plain.files["proc/cpuinfo"]).count("processor\t")
    captured = {
        path.split("/")[4]
        for path in plain.files
        if path.startswith(f"{cpu}/cpu") and "/topology/" in path
    }
    assert len(captured) == online > 0
    assert not any(path.startswith(f"{cpu}/cpu200/") for path in (*plain.files, *plain.links))
    numbers = {int(name[3:]) for name in captured}
    for name, text in plain.files.items():
        if name.endswith("/local_cpulist"):
            assert set(parse_cpulist(str(text))) <= numbers, name
        if name.endswith("/numa_node"):
            assert (
                f"sys/devices/system/node/node{str(text).strip()}/cpulist" in plain.files
                or text == "-1\n"
            )
    assert plain.sources[cpu] == str(path)
    assert any(
        "10de" in str(text) for name, text in plain.files.items() if name.endswith("/vendor")
    )


def test_the_numa_node_of_a_gpu_is_that_of_the_tree(
    tmp_path: Path, spec: Callable[[str], NodeSpec]
) -> None:
    """Of a generated GPU; the CPUs that are local to it are the tree's, too."""
    nodes = tmp_path / "tree/sys/devices/system/node"
    cpus = tmp_path / "tree/sys/devices/system/cpu"
    gpu = tmp_path / "tree/sys/bus/pci/drivers/nvidia/0000:19:00.0"
    texts = {cpus / "online": "0-3", gpu / "numa_node": "1"}
    texts |= {cpus / f"cpu{cpu}/topology/core_id": f"{cpu}" for cpu in range(4)}
    texts |= {nodes / f"node{node}/cpulist": text for node, text in enumerate(("0-1", "2-3"))}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    described = describe(spec("gpus: h100-sxm, tree: tree"))
    files = {
        path.rpartition("/")[2]: content
        for path, content in described.files.items()
        if "/0000:19:00.0/" in path
    }
    assert files["numa_node"] == b"1\n"
    assert (files["local_cpulist"], files["local_cpus"]) == ("2-3\n", "c\n")


def test_keys_that_the_captured_tree_already_sets_are_refused(
    captures: Path, spec: Callable[[str], NodeSpec]
) -> None:
    path = (captures / "sysfs/hwloc/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2").resolve()
    with pytest.raises(ScenarioError, match="comes from the captured tree; remove sockets"):
        spec(f'gpus: none, sockets: 2, tree: "{path}"')


def test_captured_governors_can_be_broken(captures: Path, spec: Callable[[str], NodeSpec]) -> None:
    path = (captures / "sysfs/hwloc/nvidia-dgx-gb10.tar.bz2").resolve()
    node = describe(spec(f'gpus: none, tree: "{path}", faults: governor-powersave'))
    found = {text for name, text in node.files.items() if name.endswith("/scaling_governor")}
    assert found == {"powersave\n"}


@pytest.mark.parametrize(
    "archive",
    [
        "sysfs/hwloc/16amd64-8n2c.tar.bz2",
        "sysfs/hwloc/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2",
        "sysfs/ghw/linux-amd64-accel-nvidia.tar.gz",
        "sysfs/nfd-pci-rootfs-1.tar.gz",
    ],
)
def test_captured_trees_become_nodes(archive: str, captures: Path) -> None:
    said: dict[str, object] = {"gpus": "none", "tree": archive}
    part = NodePart.model_validate_json(json.dumps(said))
    node = describe(NodeSpec("n1", part, said, captures.resolve(), {"": Origin("here")}))
    assert not any(name.startswith(("proc/1/", "proc/self", "sys/fs")) for name in node.files)
    assert not set(node.files) & set(node.links)
    assert str(captures.resolve() / archive) in node.sources.values()


def test_a_hostile_tree_cannot_leave_its_folder(
    tmp_path: Path, spec: Callable[[str], NodeSpec]
) -> None:
    place = tmp_path / "tree/sys/devices/system/cpu"
    place.mkdir(parents=True)
    (place / "online").write_text("0-1\n")
    (tmp_path / "tree/proc/1").mkdir(parents=True)
    (tmp_path / "tree/proc/1/status").write_text("x")
    (tmp_path / "tree/proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "tree/proc/sys/kernel/hostname").write_text("evil\n")
    (tmp_path / "tree/sys/class").mkdir()
    (tmp_path / "tree/sys/class/loop").symlink_to("loop")
    node = describe(spec("gpus: t4, tree: tree"))
    assert not {"proc/1/status", "proc/sys/kernel/hostname"} & set(node.files)
    assert node.files["sys/devices/system/cpu/online"] == b"0-1\n"
    with pytest.raises(ScenarioError, match="form a loop"):
        spec("gpus: t4, tree: tree, files: {/sys/class/loop/x: 1}")


def test_paths_are_from_the_scenarios_folder(
    tmp_path: Path, spec: Callable[[str], NodeSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree/proc").mkdir(parents=True)
    (tmp_path / "tree/proc/cmdline").write_text("captured\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert describe(spec("gpus: none, tree: tree")).files["proc/cmdline"] == b"captured\n"


class TestChanged:
    """`nodevet sim set NODE KEY=VALUE`."""

    @pytest.fixture
    def node(self, spec: Callable[[str], NodeSpec]) -> NodeSpec:
        return spec("gpus: h100-sxm, cores: 1, faults: [slow]")

    @pytest.mark.parametrize(
        ("key", "value", "path", "text"),
        [
            ("governor", "powersave", f"{POLICY}/scaling_governor", "powersave\n"),
            (
                "/sys/class/dmi/id/sys_vendor",
                "A: b",
                "sys/devices/virtual/dmi/id/sys_vendor",
                "A: b\n",
            ),
            ("numa.balancing", "1", "proc/sys/kernel/numa_balancing", "1\n"),
            ("cpufreq.driver", "acpi-cpufreq", f"{POLICY}/scaling_driver", "acpi-cpufreq\n"),
            ("smt", "false", "sys/devices/system/cpu/online", "0-1\n"),
            ("nvml.driver_version", "570.1", "sys/module/nvidia/version", "570.1\n"),
            ("driver_version", "570.10", "sys/module/nvidia/version", "570.10\n"),
        ],
    )
    def test_files(self, key: str, value: str, path: str, text: str, node: NodeSpec) -> None:
        before, after = describe(node), describe(changed(node, key, value))
        assert before.files[path] != text
        assert after.files[path] == text

    def test_a_change_of_one_key_keeps_the_rest_of_a_shorthand(
        self, spec: Callable[[str], NodeSpec]
    ) -> None:
        node = spec("gpus: h100-sxm, cores: 1, cpufreq: acpi-cpufreq")
        fewer = describe(changed(changed(node, "gpus.count", "2"), "cpufreq.per", "core"))
        assert values(fewer.state or "")["count"] == "2"
        assert fewer.files[f"{POLICY}/scaling_driver"] == "acpi-cpufreq\n"

    @pytest.mark.parametrize(
        ("key", "gpus"),
        [("gpu.3.lost", [3]), ("nvml.gpu.3.lost", [3]), ("gpu.*.lost", [*range(8)])],
    )
    def test_nvml(self, key: str, gpus: list[int], node: NodeSpec) -> None:
        state = values(describe(changed(node, key, "1")).state or "")
        assert [gpu for gpu in range(8) if of_gpu(state, gpu, "lost") == "1"] == gpus

    def test_faults_are_added_and_replaced(self, node: NodeSpec) -> None:
        both = describe(changed(node, "fault", "{pcie-width: {gpu: 1}}"))
        assert both.delay_s and of_gpu(values(both.state or ""), 1, "pcie_width") == "8"
        other = describe(changed(node, "faults", "clock-skew"))
        assert (other.delay_s, other.clock_offset_s) == (0, 300)
        assert describe(changed(node, "faults", "[]")).delay_s == 0

    def test_log_lines_come_last_and_at_once(self, node: NodeSpec) -> None:
        first = changed(node, "kernel_log", "NVRM: Xid (PCI:0000:19:00): 63, a: b")
        second = changed(first, "fault", "mce")
        last = changed(second, "kernel_log", "end")
        one, two, three = (describe(spec).kernel_log for spec in (first, second, last))
        assert one == (LogLine("NVRM: Xid (PCI:0000:19:00): 63, a: b", None),)
        assert two[:1] == one and len(two) == 4 and three[:4] == two
        assert {line.seconds for line in three} == {None}

    def test_a_fault_that_hides_the_governor_is_named(
        self, spec: Callable[[str], NodeSpec]
    ) -> None:
        slow = spec("gpus: h100-sxm, cores: 4, faults: [clock-skew, governor-powersave]")
        fast = changed(slow, "governor", "performance")
        assert hidden_by(fast) == (
            "governor=performance changes nothing: the fault governor-powersave sets it; take that "
            "away in the same command: 'faults=[\"clock-skew\"]'"
        )
        assert hidden_by(changed(fast, "faults", '["clock-skew"]')) == ""
        assert hidden_by(changed(slow, "governor", "powersave")) == ""
        assert hidden_by(slow) == ""

    def test_load_is_replaced(self, node: NodeSpec) -> None:
        busy = changed(node, "load", "[{gpus: [0], cpus: 0-1, utilization: 50}]")
        assert [load.gpus for load in describe(busy).load] == [(0,)]
        assert describe(changed(busy, "load", "[]")).load == ()

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("governer", "x", "did you mean governor?"),
            ("template", "x", "a node has no key 'template'"),
            ("governor", "x y", "governor: "),
            ("gpu.3.losst", "1", "did you mean lost?"),
            ("nvml.drivr_version", "1", "did you mean driver_version?"),
            ("fault", "pcie-widht", "did you mean pcie-width?"),
            (
                "fault",
                "{pcie-width: {gpux: 1}}",
                "n1.faults[1].pcie-width.gpux: is not a known key",
            ),
            ("cores", "many", "cores: "),
            ("cores", "[", "is not YAML"),
            ("cores", "1\ngpus: t4", "not one line"),
            ("numa.nodes", "1", "n1.numa.nodes: is not a known key"),
            ("kernel_log", "\x1b[2J", "not one line"),
        ],
    )
    def test_impossible_values_are_refused(
        self, key: str, value: str, words: str, node: NodeSpec
    ) -> None:
        with pytest.raises(ScenarioError) as caught:
            changed(node, key, value)
        assert words in str(caught.value)
        assert "\x1b" not in str(caught.value)

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            (
                "fault",
                "{pcie-width: {gpu: 9}}",
                "fault={pcie-width: {gpu: 9}}: n1.faults[1]: there is",
            ),
            ("gpu.9.lost", "1", "gpu.9.lost=1: n1.nvml: gpu.9.lost: the node has no GPU 9"),
            ("/etc/passwd", "x", "is not below /sys or /proc"),
        ],
    )
    def test_settings_that_this_node_cannot_have_are_refused(
        self, key: str, value: str, words: str, node: NodeSpec
    ) -> None:
        with pytest.raises(ScenarioError) as caught:
            describe(changed(node, key, value))
        assert words in str(caught.value)

    def test_a_change_does_not_modify_the_original_specification(self, node: NodeSpec) -> None:
        before = json.dumps(node.said)
        changed(changed(node, "fault", "mce"), "/proc/cmdline", "x")
        assert json.dumps(node.said) == before


def test_shipped_scenarios_are_found_by_name() -> None:
    names = dict(shipped_scenarios())
    assert set(names) == {"cluster", "demo", "faults"} and all(names.values())
    assert load(find("demo")).name == "demo"
    with pytest.raises(ScenarioError, match=r"did you mean demo\?"):
        find("dmo")
    assert find("./x.yaml") == Path("x.yaml")


def test_a_missing_scenario_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "no.yaml")
    assert LoadedScenario("n", "").nodes == {}
