import json
import os

import pytest

from nodevet.inventory.places import first_duplicate, place

# What `ansible-inventory --list` prints for two parents of one child.
LISTED = {
    "_meta": {
        "hostvars": {
            "gpu1": {"ansible_host": "10.0.0.1", "ansible_port": "2222", "rack": {"unit": 4}},
            "gpu2": {"ansible_user": "me", "ansible_become": "yes", "ansible_password": "x"},
            "head": {"ansible_connection": "local", "ansible_host": "127.0.0.1"},
        },
        "profile": "inventory_legacy",
    },
    "all": {"children": ["ungrouped", "gpus", "site"]},
    "gpus": {"children": ["h100"]},
    "h100": {"hosts": ["gpu2", "gpu1"]},
    "site": {"children": ["h100"]},
    "ungrouped": {"hosts": ["head"]},
}


@pytest.fixture
def file(folder):
    def write(data, name="hosts.json"):
        (folder / name).write_text(data if isinstance(data, str) else json.dumps(data))
        return [name]

    return write


def one(variables, **groups):
    return {"_meta": {"hostvars": {"x": variables}}, "all": {"hosts": ["x"]}, **groups}


def test_the_output_of_ansible_inventory_is_read(hosts, file):
    assert hosts(files=file(LISTED)) == [
        "head local ungrouped",
        "gpu2 user=me sudo gpus,h100,site",
        "gpu1 address=10.0.0.1 port=2222 gpus,h100,site",
    ]
    assert len(hosts("@site", files=file(LISTED))) == 2


def test_group_variables_are_read_from_ansible_inventory_export(hosts, file):
    data = {
        "_meta": {"hostvars": {"y": {"ansible_user": "own"}}},
        "all": {"children": ["b", "a"], "vars": {"ansible_user": "all", "ansible_port": 1}},
        "a": {"hosts": ["x"], "vars": {"ansible_user": "a", "nodevet_root": "/a"}},
        "b": {"hosts": ["x", "y"], "children": ["c"], "vars": {"ansible_user": "b"}},
        "c": {"hosts": ["z", "w"], "vars": {"ansible_user": "c"}},
        "p": {"hosts": ["w"], "vars": {"ansible_user": "p", "ansible_group_priority": 9}},
    }
    assert hosts(files=file(data)) == [
        "x port=1 user=b root=/a a,b",
        "y port=1 user=own b",
        "z port=1 user=c b,c",
        "w port=1 user=c b,c,p",
    ]


def test_priority_decides_between_groups_of_one_depth(hosts, file):
    data = {
        "_meta": {"hostvars": {}},
        "all": {"children": ["a", "b"]},
        "a": {"hosts": ["x"], "vars": {"ansible_user": "a", "ansible_group_priority": "2"}},
        "b": {"hosts": ["x"], "vars": {"ansible_user": "b"}},
    }
    assert hosts(files=file(data)) == ["x user=a a,b"]


def test_a_script_may_print_a_group_as_a_list(hosts, file):
    assert hosts(files=file({"_meta": {"hostvars": {}}, "g": ["x", "y"]})) == ["x g", "y g"]


def test_a_host_with_variables_only_is_not_dropped(hosts, file):
    assert hosts(files=file({"_meta": {"hostvars": {"x": {}}}})) == ["x"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ansible_ssh_host": "10.0.0.1"}, "x address=10.0.0.1"),
        ({"ansible_user": "a", "ansible_ssh_user": "a"}, "x user=a"),
        ({"ansible_private_key_file": "/k"}, "x key_file=/k"),
        ({"ansible_python_interpreter": "auto_silent"}, "x"),
        ({"ansible_python_interpreter": "/usr/bin/python3.9"}, "x python=/usr/bin/python3.9"),
        ({"ansible_connection": "ansible.builtin.ssh"}, "x"),
        ({"ansible_connection": "ansible.netcommon.libssh"}, "x"),
        (
            {"ansible_connection": "local", "ansible_become": True, "ansible_port": 22},
            "x local sudo",
        ),
        (
            {
                "ansible_connection": "local",
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            },
            "x local",
        ),
        ({"ansible_become": "no"}, "x"),
        ({"nodevet_whole_machine": "yes"}, "x whole_machine"),
        ({"ansible_become": 1}, "x sudo"),
        ({"ansible_become": False, "ansible_become_user": "me"}, "x"),
        ({"ansible_become": True, "ansible_become_user": "root"}, "x sudo"),
        ({"ansible_port": None}, "x"),
        ({"ansible_ssh_common_args": "-o ControlMaster=auto"}, "x"),
    ],
)
def test_connection_variables_become_host_fields(hosts, file, variables, expected):
    assert hosts(files=file(one(variables))) == [expected]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"ansible_port": "ssh"}, "ansible_port: must be a whole number, not ssh"),
        ({"ansible_port": 0}, "ansible_port: must be between 1 and 65535, not 0"),
        ({"ansible_port": "9" * 5000},
         "ansible_port: must be between 1 and 65535, not 9999999999"),
        ({"ansible_host": "-oX"},
         "ansible_host: a host name or address must not begin with a dash: "
         "ssh would take it for an option, not -oX"),
        ({"ansible_user": "a b"}, "ansible_user: must be a user name, not a b"),
        ({"ansible_become": "maybe"}, "ansible_become: must be true or false, not maybe"),
        ({"ansible_become": True, "ansible_become_method": "su"},
         "ansible_become_method: su is not supported; nodevet knows sudo only"),
        ({"ansible_become": True, "ansible_become_user": "me"},
         "ansible_become_user: me is not supported; nodevet knows root only"),
        ({"ansible_connection": "docker"},
         "ansible_connection: the connection docker is not supported; "
         "nodevet reaches hosts over ssh, or local"),
        ({"ansible_host": "{{ ip }}"},
         "ansible_host: ansible_host holds a template, which only Ansible can resolve; "
         "write the value itself into the inventory"),
        ({"ansible_user": "a", "ansible_ssh_user": "b"},
         "ansible_ssh_user: ansible_user and ansible_ssh_user disagree; keep one of the two"),
        ({"ansible_ssh_common_args": "-o ProxyJump=bastion"},
         "ansible_ssh_common_args: nodevet does not support these SSH arguments; write them into "
         "~/.ssh/config, which nodevet follows, and remove them here"),
    ],
)  # fmt: skip
def test_an_invalid_variable_is_reported_with_its_place(problems, file, variables, problem):
    key = problem.partition(":")[0]
    text = json.dumps(one(variables), indent=1)
    lines = text.splitlines()
    line = next(number for number, line in enumerate(lines, 1) if f'"{key}"' in line)
    column = lines[line - 1].index('"') + 1
    expected = f"hosts.json:{line}:{column}: _meta.hostvars.x.{problem}"
    assert problems(files=file(text)) == [expected]


MAKE = "make it with: ansible-inventory -i INVENTORY --list"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", f"1:1: not JSON: Expecting value; {MAKE}"),
        ('{"a":\n  [1,}', f"2:6: not JSON: Expecting value; {MAKE}"),
        ("[]", f"1:1: must be an object with groups; {MAKE}"),
        ('{"g": ["x"]}', f"1:1: _meta: the hosts' variables (_meta.hostvars) are missing; {MAKE}"),
        (
            '{"_meta": {"hostvars": {}},\n "g": {"hosts": ["x"], "hosts": ["y"]}}',
            "2:24: the key hosts is given twice; keep one of the two",
        ),
        (
            '{"_meta": {"hostvars": {}},\n "g": {"hosts": ["x", 1]}}',
            f"2:8: g.hosts: must be a list of names; {MAKE}",
        ),
        (
            '{"_meta": {"hostvars": {}},\n "g": {"host": ["x"]}}',
            f"2:8: g.host: a group has hosts, children, vars and nothing else; {MAKE}",
        ),
        (
            '{"_meta": {"hostvars": {}},\n "g": "x"}',
            f"2:2: g: a group is an object with hosts, children and vars; {MAKE}",
        ),
        (
            '{"_meta": {"hostvars": {}},\n "g": ["x",\n  "-x"]}',
            "3:3: g[1]: a host name must not begin with a dash: ssh would take it for an option",
        ),
        (
            '{"_meta": {"hostvars": {"x": 1}},\n "g": ["x"]}',
            f"1:25: _meta.hostvars.x: must be an object with variables; {MAKE}",
        ),
        ("[" * 200_000, "nested too deep, or a number too long, for an inventory"),
    ],
)
def test_an_invalid_document_is_reported_with_its_place(problems, file, text, problem):
    found = problems(files=file(text))
    assert found == [f"hosts.json:{problem}" if problem[0].isdigit() else f"hosts.json: {problem}"]


def test_no_hosts_is_an_error(problems, file):
    assert problems(files=file({"_meta": {"hostvars": {}}, "all": {}})) == [
        "hosts.json: holds no hosts; add some, or leave it out"
    ]


def test_groups_in_a_circle(problems, file):
    text = (
        '{"_meta": {"hostvars": {}},\n"g": {"children": ["h"]},\n'
        '"h": {"children": ["g"], "hosts": ["x"]}}'
    )
    assert problems(files=file(text)) == [
        "hosts.json:3:20: h.children[0]: g contains itself: g > h > g; "
        "remove one of these groups from the one before it"
    ]


def test_an_executable_inventory_is_run_with_the_list_option(hosts, problems, folder):
    script = folder / "inventory"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --list ] && echo \'{"_meta": {"hostvars": {}}, "g": ["x"]}\'\n'
    )
    script.chmod(0o755)
    assert hosts(files=[script]) == ["x g"]
    script.write_text("#!/bin/sh\necho no such cloud >&2\nexit 3\n")
    assert problems(files=["inventory"]) == [
        "inventory --list: ended with exit status 3; its last line: no such cloud"
    ]
    script.write_text("#!/bin/sh\necho hello\n")
    assert problems(files=["inventory"]) == [
        f"inventory --list:1:1: not JSON: Expecting value; {MAKE}"
    ]
    script.write_text("#!/no/such/interpreter\n")
    assert problems(files=["inventory"]) == [
        "inventory --list: cannot be run: No such file or directory"
    ]


def test_a_duplicate_key_is_found_even_if_strings_contain_brackets():
    text = '{"a": "}\\"{", "b": ["x:", {"a": 1}], "c": {},\n"b": 2}'
    key, offset = first_duplicate(text)
    assert (key, str(place(text, "f", offset))) == ("b", "f:2:1")


def test_ten_thousand_hosts(hosts, file):
    names = [f"gpu{number}" for number in range(10_000)]
    variables = {name: {"ansible_user": "ops"} for name in names}
    assert (
        len(hosts(files=file({"_meta": {"hostvars": variables}, "g": {"hosts": names}}))) == 10_000
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
@pytest.mark.parametrize("place", [".", "inventory"])
def test_e01_root_runs_no_script_that_others_may_write(tmp_path, hosts, problems, place):
    mark, script = tmp_path / "mark", tmp_path / "inventory"
    script.write_text(f'#!/bin/sh\ntouch {mark}\necho \'{{"g": {{"hosts": ["x"]}}}}\'\n')
    script.chmod(0o755)
    (tmp_path / place).chmod(0o777)
    (problem,) = problems(files=[script])
    assert "can be written by everyone, so root does not run it; use a copy" in problem
    assert not mark.exists()
