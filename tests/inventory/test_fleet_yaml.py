import pytest

from nodevet.inventory import read

HEAD = "nodevet: 1\n"


@pytest.fixture
def fleet(folder):
    def write(text, name="fleet.yaml"):
        (folder / name).write_text(text)
        return [name]

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hosts: b,a\n", ["b", "a"]),
        ("hosts: [b, a]\n", ["b", "a"]),
        ("hosts:\n- gpu[1-2]\n- '[1-2]'\n", ["gpu1", "gpu2", "1", "2"]),
        ("hosts:\n  gpu[1-2]:\n  gpu2: {port: 22}\n", ["gpu1", "gpu2 port=22"]),
        ("hosts: {0123: {user: a}}\n", ["0123 user=a"]),
        ('hosts: {"@local": {root: /srv/node}}\n', ["@local root=/srv/node"]),
        ("defaults: {whole_machine: true}\nhosts: {x: {}}\n", ["x whole_machine"]),
        ("defaults: {user: a}\nhosts: {x: {user: b}, y: }\n", ["x user=b", "y user=a"]),
        ("groups: {g: {hosts: x, user: b}}\ndefaults: {user: a}\n", ["x user=b g"]),
        ("groups: {g: {hosts: {x: {user: c}}, user: b}}\n", ["x user=c g"]),
        (
            "groups: {o: {hosts: 'x,y', user: a, port: 1, groups: {i: {hosts: x, user: b}}}}\n",
            ["x port=1 user=b i,o", "y port=1 user=a o"],
        ),
        (
            "groups: {a: {hosts: x, user: u}, b: {hosts: x, user: u, port: 1}}\n",
            ["x port=1 user=u a,b"],
        ),
        ("hosts: x\ngroups: {empty: }\n", ["x"]),
        ("hosts: {x: {sudo: false}}\ndefaults: {sudo: true}\n", ["x"]),
        ("hosts: {x: &s {user: a}, y: *s}\n", ["x user=a", "y user=a"]),
    ],
)
def test_hosts_are_read_with_their_settings_and_groups(hosts, fleet, text, expected):
    assert hosts(files=fleet(HEAD + text)) == expected


def test_hosts_with_equal_groups_share_one_set(fleet):
    first, second = read((), inventories=fleet(HEAD + "groups: {g: {hosts: 'x,y'}}\n"))
    assert first.groups is second.groups


def test_a_key_file_may_be_in_the_home_folder(hosts, fleet, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ops")
    assert hosts(files=fleet(HEAD + "hosts: {x: {key_file: ~/k}}\n")) == ["x key_file=/home/ops/k"]
    told = hosts(files=fleet(HEAD + "hosts: {x: {known_hosts: ~/k h}}\n"))
    assert told == ["x known_hosts=/home/ops/k h"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "hosts:\n  x: {known_hosts: 'a\"b'}\n",
            '3:20: hosts.x.known_hosts: must be a path without quotes, not a"b',
        ),
        ("host: x\n", "2:1: host: unknown key; did you mean hosts?"),
        (
            "x: 1\nhosts: x\n",
            "2:1: x: unknown key; known here: nodevet, defaults, hosts, groups",
        ),
        ("hosts:\n  x: {prot: 22}\n", "3:7: hosts.x.prot: unknown key; did you mean port?"),
        (
            "hosts:\n  x: {port: 99999}\n",
            "3:13: hosts.x.port: must be between 1 and 65535, not 99999",
        ),
        ("hosts:\n  x: {port: '22'}\n", "3:13: hosts.x.port: must be a whole number, not 22"),
        ("hosts:\n  x: {port: true}\n", "3:13: hosts.x.port: must be a whole number, not true"),
        ("hosts:\n  x: {sudo: 1}\n", "3:13: hosts.x.sudo: must be true or false, not 1"),
        ("hosts:\n  x: {user: 7}\n", "3:13: hosts.x.user: must be text, not 7"),
        ("hosts:\n  x: {user: -oX}\n", "3:13: hosts.x.user: must be a user name, not -oX"),
        ("hosts:\n  x: {python: a b}\n", "3:15: hosts.x.python: must be a program, not a b"),
        ("hosts:\n  x: {root: sys}\n", "3:13: hosts.x.root: must be an absolute path, not sys"),
        ("hosts:\n  x: {key_file: -i}\n", "3:17: hosts.x.key_file: must be a path, not -i"),
        (
            "hosts:\n  x: {address: -oX}\n",
            "3:16: hosts.x.address: a host name or address must not begin with a dash: "
            "ssh would take it for an option, not -oX",
        ),
        ("hosts:\n  x: [a]\n", "3:6: hosts.x: must be keys with values; write key: value"),
        ("hosts:\n  gpu[1-: \n", "3:3: hosts.gpu[1-: '[' is not closed"),
        (
            "hosts: gpu[1-999999999]\n",
            "2:8: hosts: gpu[1-999999999] stands for more than 100,000 hosts",
        ),
        (
            "hosts: [{x: 1}]\n",
            "2:9: hosts[0]: must be a nodeset such as gpu[001-128]; in a list, quote it: "
            '"gpu[001-128]"',
        ),
        (
            "groups: {all: {hosts: x}}\n",
            "2:10: groups.all: always means every host; use letters, digits, '_', '-' and '.'",
        ),
        (
            "groups: {'a b': {hosts: x}}\n",
            "2:10: groups.a b: not a name for a group; use letters, digits, '_', '-' and '.'",
        ),
        (
            "groups:\n  a: {hosts: x}\n  b: {groups: {a: {hosts: z}}}\n",
            "4:16: groups.b.groups.a: the group is defined twice, first at fleet.yaml:3:3; "
            "give one of them another name",
        ),
        (
            "groups:\n  a: {hosts: x, port: 1}\n  b: {hosts: x, port: 2}\n",
            "4:17: x gets port 2 here and 1 at fleet.yaml:3:17; write port on x itself",
        ),
        (
            "hosts:\n  x: {port: 1}\n  x,y: {port: 2}\n",
            "4:9: hosts.x,y: x has port 2 here and 1 at fleet.yaml:3:7; keep one of the two",
        ),
        (
            "hosts:\n  this-machine:\n  '@local':\n",
            "4:3: hosts.@local: this-machine is both @local and a host reached over SSH, "
            "at fleet.yaml:3:3; keep one of the two",
        ),
        (
            "hosts:\n  x: {address: 10.0.0.1}\n  y: {address: 10.0.0.1}\n",
            "4:7: y has the same address as x; give each its own address or port, or keep one",
        ),
        (
            "hosts:\n  x: {sudo: on}\n",
            "3:13: hosts.x.sudo: on without quotes is a boolean to some "
            'YAML readers and text to others; write true, or "on" if text is meant',
        ),
        (
            "hosts:\n  x:\n  x:\n",
            "4:3: hosts.x: is given twice, first on line 3; keep one of the two",
        ),
        ("hosts:\n\tx:\n", "3:1: YAML does not allow a tab here; indent with spaces"),
    ],
)
def test_an_invalid_fleet_file_is_reported_with_its_place(problems, fleet, text, problem):
    assert problems(files=fleet(HEAD + text)) == [f"fleet.yaml:{problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "hosts: x\n",
            "fleet.yaml:1:1: nodevet: the version of the format is missing; begin with the "
            "line: nodevet: 1",
        ),
        (
            "nodevet: 2\nhosts: x\n",
            "fleet.yaml:1:10: nodevet: this nodevet reads version 1 of the format; write "
            "nodevet: 1",
        ),
        ("nodevet: 1\n", "fleet.yaml: holds no hosts; add some, or leave it out"),
        (
            "nodevet: 1\nhosts:\n",
            "fleet.yaml:2:7: hosts: must be a nodeset such as gpu[001-128]; in a list, "
            'quote it: "gpu[001-128]"',
        ),
    ],
)
def test_a_file_without_a_required_key_is_reported(problems, fleet, text, problem):
    assert problems(files=fleet(text)) == [problem]


def test_a_file_in_neither_format_is_reported(problems, fleet):
    assert problems(files=fleet("gpus:\n  - x\n")) == [
        "fleet.yaml:1:1: not an inventory: nodevet's begin with the line nodevet: 1, and "
        "Ansible's have groups with hosts, children or vars; correct it, or name another file"
    ]


def test_all_problems_are_reported_at_once(problems, fleet):
    text = HEAD + "host: x\nhosts:\n  a: {prt: 1, sudo: on}\n  b c:\n"
    assert [line.split(": ")[0] for line in problems(files=fleet(text))] == [
        "fleet.yaml:2:1",
        "fleet.yaml:4:7",
        "fleet.yaml:4:21",
        "fleet.yaml:5:3",
    ]


def test_many_problems_fit_one_screen(problems, fleet):
    lines = problems(
        files=fleet(HEAD + "hosts:\n" + "".join(f"  x{n}: {{q: 1}}\n" for n in range(99)))
    )
    assert len(lines) == 21
    assert lines[-1] == "and 79 more problems like these"


@pytest.mark.parametrize("text", ["[" * 200_000, "a: " + "{a: " * 200_000])
def test_deep_nesting_is_refused(problems, fleet, text):
    (line,) = problems(files=fleet(text))
    assert line.startswith("fleet.yaml:1:")


def test_different_sudo_settings_in_two_files_contradict_each_other(problems, fleet):
    one = fleet(HEAD + "hosts: {x: {sudo: true}}\n", "one.yaml")
    two = fleet(HEAD + "hosts: {x: {sudo: false}}\n", "two.yaml")
    assert problems(files=one + two) == [
        "two.yaml:2:13: x has sudo false, but one.yaml:2:13 says true; keep one of the two"
    ]


def test_ten_thousand_hosts(hosts, fleet):
    lines = "".join(f"  gpu{number}: {{port: 22, user: ops}}\n" for number in range(10_000))
    assert len(hosts(files=fleet(f"{HEAD}hosts:\n{lines}"))) == 10_000
