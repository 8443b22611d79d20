"""What others' tools read here: the container image, pre-commit's hook."""

import json
import re
import shlex
import subprocess
import sys
import tarfile
from importlib.metadata import requires
from pathlib import Path
from typing import IO

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).parents[1]
PINS = (REPO / ".ci/requirements.txt").read_text()
HOOK_KEYS = {"id", "name", "description", "entry", "language", "files"}


def test_the_pins_of_the_image_are_all_that_nodevet_needs() -> None:
    words = [sys.executable, str(REPO / ".ci/runtime.py")]
    plain, more = (
        set(re.findall(r"(?m)^([\w.-]+)==", subprocess.check_output([*words, *extra], text=True)))
        for extra in ([], ["kubernetes"])
    )
    assert {"click", "msgspec", "ssh-python"} < plain and "pytest" not in more
    assert more - plain > {"kubernetes", "requests", "aiohttp"}


def test_every_dependency_is_among_the_pins() -> None:
    """So that the image gets it with its hash."""
    pinned = {canonicalize_name(name) for name in re.findall(r"(?m)^([\w.-]+)==", PINS)}
    found, left = set(), ["nodevet"]
    while left:
        for text in requires(left.pop()) or ():
            wanted = Requirement(text)
            name = canonicalize_name(wanted.name)
            if (wanted.marker is None or wanted.marker.evaluate({"extra": ""})) and (
                name not in found
            ):
                found.add(name)
                left.append(name)
    assert len(found) > 20
    assert found - pinned == set()


def test_the_image_holds_what_the_manifests_run() -> None:
    """The OCI archive of `make image`: https://github.com/opencontainers/image-spec."""
    path = REPO / "build/nodevet-image.tar"
    if not path.exists():
        pytest.skip("no container builder: make image did not run here")
    with tarfile.open(path) as archive:

        def blob(digest: str) -> IO[bytes]:
            found = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found
            return found

        index = archive.extractfile("index.json")
        assert index
        manifest = json.load(blob(json.load(index)["manifests"][0]["digest"]))
        config = json.load(blob(manifest["config"]["digest"]))["config"]
        names: set[str] = set()
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"])) as files:
                names |= {name.removeprefix("./") for name in files.getnames()}
    assert (config["Entrypoint"], config["User"]) == (["nodevet"], "nodevet")
    packages = "usr/local/lib/python3.11/dist-packages"
    wanted = ["nodevet/k8s/command.py", "nodevet/checks/xid.py", "kubernetes/client/api_client.py"]
    assert names >= {f"{packages}/{name}" for name in wanted}
    assert names >= {"usr/local/bin/nodevet", "usr/bin/ssh", "usr/bin/python3", "host"}
    assert not [
        name for name in names if re.search(r"\.whl$|pip\.conf|/\.ssh/|environment\.env", name)
    ]


def test_the_hook_lints_the_baselines_that_are_committed(tmp_path: Path) -> None:
    """As pre-commit does: `entry`, and the staged files that `files` matches."""
    (hook,) = yaml.safe_load((REPO / ".pre-commit-hooks.yaml").read_text())
    assert set(hook) == HOOK_KEYS
    assert hook["language"] == "python"  # pre-commit installs this repository into a venv
    good, bad = tmp_path / "baselines/good.yaml", tmp_path / "baselines/bad.yaml"
    good.parent.mkdir()
    good.write_text("nodevet: 1\nextends: nvidia-l40s\n")
    bad.write_text("nodevet: 1\nextends: nvidia-l40z\n")
    (tmp_path / "fleet.yaml").write_text("nodevet: 1\nhosts: gpu001\n")
    (tmp_path / "baselines/notes.md").write_text("# notes\n")
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    chosen = sorted(name for name in names if re.search(hook["files"], name))
    assert chosen == ["baselines/bad.yaml", "baselines/good.yaml"]
    entry = [str(Path(sys.prefix, "bin/nodevet")), *shlex.split(hook["entry"])[1:]]
    assert shlex.split(hook["entry"])[0] == "nodevet"
    passed = subprocess.run([*entry, chosen[1]], cwd=tmp_path, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stderr
    failed = subprocess.run([*entry, *chosen], cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 2
    assert "baselines/bad.yaml:2:10: " in failed.stdout + failed.stderr
