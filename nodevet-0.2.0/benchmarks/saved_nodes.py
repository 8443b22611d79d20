"""A thousand saved nodes, no two alike: simulated nodes of every kind, booted and read, and
variations of what they said.

Every profile of the simulator is booted once healthy and several times with faults, and is read
as a sweep reads it. Each of these documents then stands for several nodes, which have other
names, serials and counters.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml
from contenders import BenchmarkError

from nodevet.author.use.listing import checks_of
from nodevet.baseline import available, params_of
from nodevet.checking.catalog import Catalog
from nodevet_sim.faults import FAULTS
from nodevet_sim.scenario import ScenarioError, load
from nodevet_sim.state import profiles

OF_A_KIND = 12  # nodes that are booted of each profile; the first is healthy
FAULTS_EACH = 2
AT_A_TIME = 28  # nodes that run at once
UNREADABLE = {"nvml-hang", "python-missing", "slow", "sshd-hang", "sshd-stopped"}
IDENTITY = {"boot_id", "guid", "host_name", "hostname", "machine_id", "node_guid", "serial", "uuid"}
COUNTER = re.compile(r".*(_errors|corrected|_counter|_discards|_drops|link_downed)")
COUNTED = 0.02  # of the counters have counted something
READING = re.compile(r"(power_draw|temperature_(gpu|memory)|clock_(graphics|sm))_\w+")

Scenario = dict[str, Any]


def make(folder: Path, count: int, seed: int = 1) -> tuple[Path, Path]:
    """So many saved nodes in a folder below this one, and the project to judge them by."""
    folder.mkdir()
    draw = random.Random(seed)
    project = make_project(folder / "project")
    read, saved = folder / "read", folder / "saved"
    nodes = list(scenario(folder / "try.yaml", draw).items())
    for first in range(0, len(nodes), AT_A_TIME):
        boot_and_read(folder, dict(nodes[first : first + AT_A_TIME]), project, read)
    originals = sorted(read.glob("*.json"))
    if len(originals) != len(nodes):
        raise BenchmarkError(f"{len(originals)} of {len(nodes)} simulated nodes were read")
    saved.mkdir()
    for number, original in enumerate(islice(cycle(originals), count)):
        name = f"{original.stem}-{number:04d}"
        document = varied(json.loads(original.read_text(encoding="utf-8")), draw, {})
        document["host"] = name
        (saved / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return saved, project


def booted() -> int:
    """How many nodes are simulated."""
    return len(profiles()) * OF_A_KIND


def make_project(folder: Path) -> Path:
    """The shipped baselines, each with every other check that takes no value of the site."""
    catalog = Catalog([], [])
    baselines = folder / "baselines"
    baselines.mkdir(parents=True)
    plain = [name for name in catalog.ids if params_of(catalog.check(name), {}) is not None]
    for name, path in available([]):
        applies = yaml.safe_load(path.read_text(encoding="utf-8")).get("applies")
        if applies:
            asked = set(checks_of(path, [], catalog))
            document = {"nodevet": 1, "title": f"{name}, and every other check", "extends": name}
            document |= {
                "applies": applies,
                "expect": {one: {} for one in plain if one not in asked},
            }
            text = yaml.safe_dump(document)
            (baselines / f"every-{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def scenario(attempt: Path, draw: random.Random) -> dict[str, Scenario]:
    """The nodes to boot, by name. `attempt` is a file to try them in."""
    faults = sorted(FAULTS.keys() - UNREADABLE)
    draw.shuffle(faults)
    ahead = cycle(faults)
    nodes: dict[str, Scenario] = {}
    for profile in profiles():
        for number in range(OF_A_KIND):
            node: Scenario = {"gpus": profile, "faults": []}
            for fault in islice(ahead, len(faults)) if number else ():
                broken = {**node, "faults": [*node["faults"], fault]}
                if fits(broken, attempt):
                    node = broken
                if len(node["faults"]) == FAULTS_EACH:
                    break
            nodes[f"{profile}-{number}"] = node
    return nodes


def fits(node: Scenario, attempt: Path) -> bool:
    """Whether a node can have its faults, together."""
    attempt.write_text(yaml.safe_dump({"sim": 1, "title": "one", "nodes": {"one": node}}))
    try:
        load(attempt)
    except ScenarioError:
        return False
    return True


def boot_and_read(folder: Path, nodes: dict[str, Scenario], project: Path, into: Path) -> None:
    """Save what these nodes say, read as these baselines ask."""
    path, inventory = folder / "nodes.yaml", folder / "inventory.yaml"
    path.write_text(yaml.safe_dump({"sim": 1, "title": "of every kind", "nodes": nodes}))
    fleet = f"bench{os.getpid()}"
    try:
        nodevet("sim", "up", str(path), "--name", fleet)
        inventory.write_text(nodevet("sim", "inventory", fleet), encoding="utf-8")
        where = ("-i", str(inventory), "--project", str(project), "--save", str(into))
        nodevet("check", *where, "--deadline", "300", "--format", "json")
    finally:
        nodevet("sim", "down", fleet)


def nodevet(*words: str) -> str:
    """What it prints. Raises BenchmarkError if it did not do its work."""
    command = [sys.executable, "-m", "nodevet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in ((0, 1, 3) if words[0] == "check" else (0,)):
        raise BenchmarkError(f"nodevet {' '.join(words[:2])}: {done.stderr[-2000:]}")
    return done.stdout


def varied(value: Any, draw: random.Random, known: dict[str, str], key: str = "") -> Any:
    """The same of another node. `known`: what stands for an identity, wherever it is named."""
    if isinstance(value, dict):
        return {name: varied(part, draw, known, name) for name, part in value.items()}
    if isinstance(value, list):
        return [varied(part, draw, known, key) for part in value]
    if isinstance(value, str) and key in IDENTITY:
        return known.setdefault(value, "".join(other_digits(value, draw)))
    if type(value) is int and COUNTER.fullmatch(key):
        return value + draw.randrange(1, 2000) if draw.random() < COUNTED else value
    if type(value) is int and READING.fullmatch(key):
        return round(value * draw.uniform(0.9, 1.2))
    return value


def other_digits(text: str, draw: random.Random) -> Iterator[str]:
    for character in text:
        yield draw.choice("0123456789") if character.isdigit() else character
