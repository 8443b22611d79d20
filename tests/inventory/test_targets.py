"""The words of the command line, with and without an inventory."""

import sys
from subprocess import run

import pytest

FLEET = """\
nodevet: 1
hosts: gpu[001-010]
groups:
  h100: {hosts: "gpu[001-006]"}
  rack1: {hosts: "gpu[005-008]"}
  spare:
"""


@pytest.fixture
def fleet(folder):
    (folder / "fleet.yaml").write_text(FLEET)
    return ["fleet.yaml"]


def numbers(lines):
    return [int(line.split()[0].removeprefix("gpu")) for line in lines]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["b", "a", "b"], ["b", "a"]),
        (["gpu[1-3]!gpu2"], ["gpu1", "gpu3"]),
        (["!gpu2", "gpu[1-3]"], ["gpu1", "gpu3"]),
        (["@local"], ["@local"]),
        (["@local,a"], ["@local", "a"]),
        (["root@a:2222"], ["a port=2222 user=root"]),
        (["a:22", "b"], ["a port=22", "b"]),
        (["[::1]:2222"], ["::1 port=2222"]),
        (["me@fe80::1"], ["fe80::1 user=me"]),
        (["DOM\\me@a"], ["a user=DOM\\me"]),
        (["me@example.org@a"], ["a user=me@example.org"]),
    ],
)
def test_without_an_inventory_targets_are_hosts(hosts, targets, expected):
    assert hosts(*targets) == expected


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("@h100", "no group @h100 here; give an inventory that has it with -i"),
        (
            "root@gpu[1-3]",
            "a user and a port are for a single host; for many, write an inventory or "
            "~/.ssh/config",
        ),
        ("a:", "column 3: a port is a number"),
        ("a:ssh", "column 3: a port is a number"),
        ("a:70000", "port: must be between 1 and 65535"),
        ("-x@a", "user: must be a user name"),
        ("@", "no group @ here; give an inventory that has it with -i"),
        (
            "me@-x",
            "column 4: a host name must not begin with a dash: ssh would take it for an option",
        ),
        (
            "b,-x",
            "column 3: -x: a host name must not begin with a dash: ssh would take it for an option",
        ),
        ("!a", "column 2: ! has nothing to its left; name hosts first"),
    ],
)
def test_an_invalid_target_is_reported(problems, target, problem):
    (line,) = problems(target)
    assert line == f"target: {target}{',' if problem.startswith('column') else ':'} {problem}"


def test_a_hostile_target_is_shortened_and_escaped(problems):
    (line,) = problems("a\x1b]0;x\x07" + "b" * 1000)
    assert line.isprintable() and len(line) < 200


def test_one_name_with_two_ports_is_refused(problems):
    assert problems("a:1,a:2") == ["target: a has port 2, but target says 1; keep one of the two"]


def test_no_hosts_is_an_error(problems):
    assert problems() == [
        "target: no hosts to vet; name some, such as gpu[001-128] or @local, "
        "or give an inventory with -i"
    ]


def test_all_problems_are_reported(problems):
    assert len(problems("a]", "-b", "@c")) == 3


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (["gpu003", "gpu001"], [1, 3]),
        (["@h100&@rack1"], [5, 6]),
        (["@h100!@rack1"], [1, 2, 3, 4]),
        (["@h100^@rack1"], [1, 2, 3, 4, 7, 8]),
        (["!@h100"], [7, 8, 9, 10]),
        (["@all!@h100"], [7, 8, 9, 10]),
        (["@*,!@h100,&@rack1"], [7, 8]),
        (["@rack1", "!gpu005", "gpu010"], [6, 7, 8, 10]),
    ],
)
def test_with_an_inventory_targets_select_hosts(hosts, fleet, targets, expected):
    assert numbers(hosts(*targets, files=fleet)) == expected


def test_an_inventory_without_groups_says_so(problems, folder):
    (folder / "plain.yaml").write_text("nodevet: 1\nhosts: {gpu1: }\n")
    (said,) = problems("@rack1", files=["plain.yaml"])
    assert "no group @rack1 in the inventory; there are no groups at all: " in said


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("gpu0001", "gpu0001 is not in the inventory; did you mean gpu001?"),
        ("gpu[009-012]", "gpu[011-012] are not in the inventory; did you mean gpu010?"),
        ("zzz", "zzz is not in the inventory; there are gpu[001-010]"),
        (
            "@h10",
            "no group @h10 in the inventory; did you mean @h100? there are @h100, @rack1, @spare",
        ),
        ("@zzz", "no group @zzz in the inventory; there are @h100, @rack1, @spare"),
        ("@spare", "the group @spare has no hosts"),
        (
            "root@gpu001",
            "the inventory sets user and port of its hosts; name the host without user and port",
        ),
    ],
)
def test_an_unknown_target_is_reported(problems, fleet, target, problem):
    assert problems(target, files=fleet) == [f"target: {target}: {problem}"]


def test_local_keeps_the_groups_of_its_name(hosts, folder, machine):
    text = f"nodevet: 1\ngroups: {{g: {{hosts: {machine}, port: 22, sudo: true}}}}\n"
    (folder / "f.yaml").write_text(text)
    assert hosts("@local", files=["f.yaml"]) == ["@local sudo g"]


def test_local_beside_an_inventory(hosts, fleet):
    assert hosts("@local", "gpu001", files=fleet) == ["gpu001 h100", "@local"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (["gpu[005-500]"], [5, 6]),
        (["@rack1"], [5, 6]),
        (["!@rack1"], [1, 2, 3, 4]),
        (["!gpu001", "@h100"], [2, 3, 4, 5, 6]),
        (["gpu001,gpu010"], [1]),
    ],
)
def test_limit_narrows_the_targets(hosts, fleet, limit, expected):
    assert numbers(hosts("@h100", files=fleet, limit=limit)) == expected


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("gpu010", "none of the 6 chosen hosts is within the limit; widen the limit"),
        ("!@h100", "none of the 6 chosen hosts is within the limit; widen the limit"),
        ("gpu[011-500]", "gpu[011-500] are not in the inventory; did you mean gpu010?"),
        ("!gpu01", "gpu01 is not in the inventory; did you mean gpu010?"),
        (
            "@h10",
            "no group @h10 in the inventory; did you mean @h100? there are @h100, @rack1, @spare",
        ),
        ("me@gpu001", "a limit takes names and groups; leave out user and port"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(problems, fleet, limit, problem):
    (line,) = problems("@h100", files=fleet, limit=[limit])
    assert line.startswith(f"--limit: {limit}") and line.endswith(f": {problem}")


def test_limit_without_an_inventory(hosts, problems):
    assert hosts("n[1-3]", limit=["!n2"]) == ["n1", "n3"]
    assert problems("n[1-3]", limit=["n9"])


def test_standard_input_holds_targets(hosts):
    said = b"# idle nodes\ngpu[1-2] root@login:2222\n\na, b # both\n"
    assert hosts("-", "z", stdin=said) == [
        "gpu1",
        "gpu2",
        "login port=2222 user=root",
        "a",
        "b",
        "z",
    ]


def test_standard_input_chooses_from_an_inventory(hosts, problems, fleet):
    assert hosts("-", files=fleet, stdin=b"gpu003\n") == ["gpu003 h100"]
    assert problems("-", files=fleet, stdin=b"gpu003\n  gpu003x\n") == [
        "<stdin>:2:3: gpu003x: gpu003x is not in the inventory; did you mean gpu003?"
    ]


def test_standard_input_may_be_ansibles_json(hosts):
    said = b'{"_meta": {"hostvars": {}}, "g": {"hosts": ["a", "b"]}}'
    assert hosts("-", "!a", stdin=said) == ["b g"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"", "<stdin>: names no host; write one nodeset per line"),
        (b"# nothing\n", "<stdin>: names no host; write one nodeset per line"),
        (b"a\nb\xff", "<stdin>:2:2: not UTF-8 text; save it as UTF-8"),
        (b"a\nb [", "<stdin>:2:3: [: '[' is not closed"),
        (b"x" * (16 * 2**20 + 1), "<stdin>: larger than 16 MiB, which no inventory needs"),
    ],
)
def test_invalid_standard_input_is_reported(problems, said, problem):
    assert problems("-", stdin=said) == [problem]


def test_simple_targets_import_no_library():
    code = (
        "import io, sys; from nodevet import inventory;"
        "inventory.read(['@local', 'gpu1', 'a:22', 'n[1-3]'], limit=['!n2']);"
        "print({'yaml', 'ClusterShell', 'pyinfra', 'difflib'} & set(sys.modules))"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")
