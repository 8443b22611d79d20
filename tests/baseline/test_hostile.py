"""Files made to exhaust memory, time or the stack, and files that are none."""

import os
import subprocess
import sys
import time

import pytest

from nodevet.baseline.nodesets import hosts

HEAD = "nodevet: 1\n"

LOAD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from nodevet.baseline import BaselineErrors, load
from nodevet.checking.catalog import Catalog
for name in sys.argv[1:]:
    try:
        load([name], catalog=Catalog())
    except BaselineErrors as error:
        print(error)
"""
DEEP = {
    "flow": "[" * 500_000,
    "flow-map": "{a: " * 200_000,
    "flow-value": "a: " + "[" * 500_000,
    "block": "a:\n" + "- " * 500_000 + "x",
    "complex-key": "a:\n" + "? " * 500_000,
    "closed": "a: " + "[[" * 1000 + "]]" * 1000,
    "indented": "".join(f"{'  ' * i}a:\n" for i in range(900)),
}


def test_deep_nesting_is_reported_without_a_crash(tmp_path):
    for name, text in DEEP.items():
        (tmp_path / f"{name}.yaml").write_text(HEAD + text)
    names = [f"./{name}.yaml" for name in DEEP]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [line.split(":", 1)[0] for line in told] == [f"{name}.yaml" for name in DEEP]
    for name, line in zip(DEEP, told, strict=True):
        deep = "nested deeper than 32 levels; flatten it" in line
        assert deep or (name in ("flow", "flow-map") and "is not YAML" in line), line


def test_anchors_that_expand_without_bound(problems_of):
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    started = time.process_time()
    (problem,) = problems_of(HEAD + "\n".join(rows))
    assert problem == (
        "x.yaml:6:15: a4[1]: more than 20,000 values, aliases written out; "
        "write the values out, or split the file"
    )
    assert time.process_time() - started < 20


def test_anchors_that_nest_without_bound(problems_of):
    rows = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
    (problem,) = problems_of(HEAD + "\n".join(rows))
    assert problem == "x.yaml:33:12: a31[0]: nested deeper than 32 levels; write the value out"


def test_a_file_of_100_megabytes_is_refused_before_it_is_read(shelf):
    path = shelf.folder / "x.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    assert shelf.problems("x") == [
        "x.yaml: holds 104,857,600 bytes; the limit is 1,048,576; is this the right file?"
    ]


def test_a_pipe_a_folder_and_a_device_are_not_read(shelf):
    os.mkfifo(shelf.folder / "pipe.yaml")
    (shelf.folder / "folder.yaml").mkdir()
    assert shelf.problems("./pipe.yaml", "./folder.yaml", "/dev/zero") == [
        f"{name}: is not a regular file; name a YAML file"
        for name in ("pipe.yaml", "folder.yaml", "/dev/zero")
    ]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_listed_baseline_that_is_not_a_regular_file_is_reported(shelf, make):
    make(shelf.folder / "site.yaml")
    assert shelf.problems("site") == ["site.yaml: is not a regular file; name a YAML file"]


def test_a_file_that_may_not_be_read(shelf, monkeypatch):
    shelf.write(x=HEAD)

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert shelf.problems("x") == [
        "x.yaml: cannot be read: Permission denied; check the path and its mode"
    ]


def test_a_link_to_itself(shelf):
    (shelf.folder / "x.yaml").symlink_to("x.yaml")
    (problem,) = shelf.problems("./x.yaml")
    assert problem.startswith("x.yaml: cannot be read: Too many levels of symbolic links")


def test_a_long_name(shelf):
    (problem,) = shelf.problems("x" * 5000)
    assert problem.endswith("no baseline has this name; `nodevet list baselines` names them")
    (problem,) = shelf.problems("y/" * 3000)
    assert "cannot be read: File name too long" in problem


@pytest.mark.parametrize(
    "text",
    [
        "n[1-999999999]",
        "n[1-99999999999999999999999]",
        "n[1-1000]x[1-1000]",
        "n[1-60000],m[1-60000]",
        "n[0-99999999/2]",
        "n[0000000001-9999999999]",
        ",".join(f"n{i}-[1-99999]" for i in range(100)),
    ],
)
def test_a_nodeset_that_would_eat_the_memory(text):
    with pytest.raises(ValueError, match=r"more than 100,000 hosts|too many digits"):
        hosts(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", {"gpu1"}),
        ("gpu[08-11]", {"gpu08", "gpu09", "gpu10", "gpu11"}),
        ("a[1-4/2],b", {"a1", "a3", "b"}),
        ("r[1-2]n[1,3]", {"r1n1", "r1n3", "r2n1", "r2n3"}),
        ("n[1-4]!n[2-3]", {"n1", "n4"}),
        ("node-1.example.org", {"node-1.example.org"}),
    ],
)
def test_a_nodeset(text, names):
    assert hosts(text) == names


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "*", "n?", "@group", "n[3-1]", "n[1-", "n]", "a&b"]
)
def test_an_invalid_nodeset_is_refused(text):
    with pytest.raises(ValueError, match=r"gpu\[001-128\]"):
        hosts(text)


def test_a_waiver_for_more_hosts_than_one_list_may_name(problems_of):
    rows = "".join(f'      - "n{i}-[1-50000]"\n' for i in range(4))
    text = (
        f"{HEAD}waivers:\n  - check: number\n    owner: a\n    reason: b\n    until: 2026-12-31\n"
        "    accepts: 7\n"
    )
    assert problems_of(f"{text}    hosts:\n{rows}") == [
        "x.yaml:9:7: waivers[0].hosts: names more than 100,000 hosts; check the range"
    ]
