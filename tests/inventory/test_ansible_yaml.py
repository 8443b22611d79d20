"""Ansible's YAML inventories, read by nodevet itself."""

import pytest

SITE = """\
all:
  hosts:
    login: {ansible_host: 10.0.0.9, ansible_become: yes}
  vars: {ansible_user: ops}
  children:
    gpu:
      children:
        h100:
          hosts:
            gpu[001:002]:
            gpu003:2222: {ansible_port: 2200, rack: {unit: 4}, secret: !vault "$ANSIBLE_VAULT;1.1"}
          vars: {ansible_user: root, ansible_python_interpreter: /opt/python3}
        a100:
      vars: {ansible_become: on}
"""


@pytest.fixture
def site(folder):
    def write(text, name="hosts.yml"):
        (folder / name).write_text(text)
        return [name]

    return write


@pytest.mark.parametrize("name", ["hosts.yml", "hosts.yaml", "hosts"])
def test_groups_children_vars_and_ranges(hosts, site, name):
    assert hosts(files=site(SITE, name)) == [
        "login address=10.0.0.9 user=ops sudo ungrouped",
        "gpu001 user=root python=/opt/python3 sudo gpu,h100",
        "gpu002 user=root python=/opt/python3 sudo gpu,h100",
        "gpu003 port=2200 user=root python=/opt/python3 sudo gpu,h100",
    ]
    assert len(hosts("@h100", files=site(SITE, name))) == 3


def test_the_variables_of_a_host_in_several_places_add_up(hosts, site):
    text = (
        "a: {hosts: {x: {ansible_user: one}}, vars: {ansible_host: 10.0.0.1}}\n"
        "b: {hosts: {x: {ansible_user: two}}}\nc: {hosts: y}\nungrouped: {hosts: {x: }}\n"
    )
    assert hosts(files=site(text)) == ["x address=10.0.0.1 user=two a,b", "y c"]


def test_a_port_counts_where_the_host_is_first_named(hosts, site):
    text = "a:\n  hosts:\n    x:22:\nb:\n  hosts:\n    x:23:\n"
    assert hosts(files=site(text)) == ["x port=22 a,b"]


def test_anchors_are_followed(hosts, site):
    text = "a: {hosts: {x: &ops {ansible_user: ops}, y: *ops}}\n"
    assert hosts(files=site(text)) == ["x user=ops a", "y user=ops a"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("all: {hosts: {x: {ansible_port: 99999}}}\n",
         "1:19: _meta.hostvars.x.ansible_port: must be between 1 and 65535, not 99999"),
        ("a: {vars: {ansible_host: !vault 'x'}, hosts: {y: }}\n",
         "1:12: a.vars.ansible_host: ansible_host is encrypted by Ansible Vault, which only "
         "Ansible can resolve; write the value itself into the inventory"),
        ("all: {hosts: {x: {ansible_host: '{{ ip }}'}}}\n",
         "1:19: _meta.hostvars.x.ansible_host: ansible_host holds a template, which only Ansible "
         "can resolve; write the value itself into the inventory"),
        ("all: {hosts: {x: {ansible_connection: docker}}}\n",
         "1:19: _meta.hostvars.x.ansible_connection: the connection docker is not supported; "
         "nodevet reaches hosts over ssh, or local"),
        ("all: {hosts: [x]}\n",
         "1:14: all.hosts: must be keys with values; end each name with a colon"),
        ("all: {hosts: {x: }, host: {y: }}\n",
         "1:21: all.host: a group has hosts, children, vars and nothing else"),
        ("all:\n  hosts:\n    gpu[9:1]:\n", "3:5: all.hosts: [9:1] is a range of 0 hosts"),
        ("all:\n  hosts:\n    gpu[01:100]:\n",
         "3:5: all.hosts: [01:100] has ends of two lengths"),
        ("a: {children: {b: {children: {a: }}}, hosts: {x: }}\n",
         "1:31: b.children[0]: a contains itself: a > b > a; "
         "remove one of these groups from the one before it"),
        ("all: &a\n  hosts: {x: {<<: *a}}\n",
         "2:15: all.hosts.x: merge keys (<<) are not supported; write the fields out"),
        ("plugin: constructed\n",
         "1:1: plugin: only Ansible runs inventory plug-ins; install ansible-core, or run: "
         "ansible-inventory -i FILE --list > hosts.json"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_column(problems, site, text, problem):
    assert problems(files=site(text))[0] == f"hosts.yml:{problem}"


@pytest.mark.parametrize("beside", ["group_vars", "host_vars"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("hosts.yml", "all: {hosts: {x: }}\n"), ("hosts.ini", "[a]\nx\n"), ("hosts", "x\n")],
)
def test_group_vars_and_host_vars_beside_an_inventory_are_refused(
    problems, site, folder, beside, name, text
):
    (folder / beside).mkdir()
    assert problems(files=site(text, name)) == [
        f"{name}: only Ansible can merge the variables in {beside} beside it; install "
        "ansible-core, or run: ansible-inventory -i FILE --list > hosts.json"
    ]


def test_a_list_of_names_has_no_variables(hosts, site, folder):
    (folder / "group_vars").mkdir()
    assert hosts(files=site("gpu[1-2]\n", "names.txt")) == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("-o ProxyJump=bastion", True),
        ("-oProxyCommand='ssh -W %h:%p bastion'", True),
        ("-J bastion", True),
        ("-qJbastion", True),
        ("-F /etc/ssh/other", True),
        ("-o 'HostName 10.0.0.1'", True),
        ("-p 2222", True),
        ("-o Port=2222", True),
        ("-l root", True),
        ("{{ jump }}", True),
        ("-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/k -C", False),
        ("-o StrictHostKeyChecking=no -o ControlPath=/tmp/ssh-www-jump", False),
        ("-vvv -oForwardAgent=yes -i /key", False),
    ],
)
def test_ssh_arguments_that_lead_elsewhere_are_refused(hosts, problems, site, arguments, refused):
    files = site(f'all: {{hosts: {{x: {{ansible_ssh_common_args: "{arguments}"}}}}}}\n')
    if refused:
        (problem,) = problems(files=files)
        assert "nodevet does not support these SSH arguments" in problem
    else:
        assert hosts(files=files) == ["x ungrouped"]


@pytest.mark.parametrize(
    "variable",
    ["ansible_ssh_executable", "ansible_paramiko_proxy_command", "ansible_libssh_proxy_command"],
)
def test_other_ssh_programs_are_refused(problems, site, variable):
    (problem,) = problems(files=site(f"all: {{hosts: {{x: {{{variable}: /opt/jump}}}}}}\n"))
    assert "nodevet uses no other SSH program to reach hosts" in problem


def test_baselines_and_evidence_are_not_read_as_ansible_inventories(problems, site, folder):
    assert problems(files=site("applies:\n  hosts: x\nexpect: {}\n")) == [
        "hosts.yml: this is a baseline; use it with -b hosts.yml"
    ]
    (folder / "evidence").mkdir()
    (folder / "evidence" / "a.json").write_text('{"schema": 1, "probe": "1", "sections": {}}')
    assert problems(files=["evidence"]) == [
        "evidence: this is saved evidence; judge it with: nodevet check --evidence evidence"
    ]
