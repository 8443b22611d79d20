"""The `bmc:` of a host: completed by its groups, refused with its place, never with a password."""

import json

import pytest

BMC = "kind: redfish, address: '%h-bmc', user: vet, password: {env: BMC}"
READ = "bmc=kind:redfish/address:{}/user:vet/password:('env', 'BMC')"
WHERE = "must say where the password is: {file: PATH}, {env: NAME} or {command: [PROGRAM, ...]}"


@pytest.fixture
def fleet(folder):
    def write(text):
        (folder / "fleet.yaml").write_text(f"nodevet: 1\n{text}")
        return ["fleet.yaml"]

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"hosts: {{x: {{bmc: {{{BMC}}}}}}}\n", [f"x {READ.format('x-bmc')}"]),
        (
            f"groups: {{g: {{hosts: 'x[1-2]', bmc: {{{BMC}}}}}}}\n",
            [f"x1 {READ.format('x1-bmc')} g", f"x2 {READ.format('x2-bmc')} g"],
        ),
        (
            f"defaults: {{bmc: {{{BMC}}}}}\nhosts: {{x: {{bmc: {{address: 10.0.0.9}}}}}}\n",
            [f"x {READ.format('10.0.0.9')}"],
        ),
        (
            "hosts: {x: {bmc: {kind: ipmi, address: b, port: 9623, user: ADMIN, "
            "password: {command: [pass, show, bmc]}}}}\n",
            [
                "x bmc=kind:ipmi/address:b/port:9623/user:ADMIN/"
                "password:('command', ('pass', 'show', 'bmc'))"
            ],
        ),
        (
            f"hosts: {{x: {{bmc: {{{BMC}, insecure: true}}}}}}\n",
            [f"x {READ.format('x-bmc')}/insecure:True"],
        ),
        (
            f"defaults: {{bmc: {{{BMC}, power_group: rack7-pdu2}}}}\nhosts: {{x: {{}}}}\n",
            [f"x {READ.format('x-bmc')}/power_group:rack7-pdu2"],
        ),
        (
            f"hosts: {{x: {{bmc: {{{BMC}, identity: unproven, timeout: 5m}}}}}}\n",
            [f"x {READ.format('x-bmc')}/identity:unproven/timeout:300.0"],
        ),
    ],
)
def test_a_bmc_is_read_from_hosts_and_groups(hosts, fleet, text, expected):
    assert hosts(files=fleet(text)) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: ilo", "3:19: hosts.x.bmc.kind: must be redfish or ipmi, not ilo"),
        ("kinds: ipmi", "3:13: hosts.x.bmc.kinds: unknown key; did you mean kind?"),
        (
            "address: '-b'",
            "3:22: hosts.x.bmc.address: a host name or address must not begin with a dash: "
            "ssh would take it for an option, not -b",
        ),
        ("user: 'a:b'", "3:19: hosts.x.bmc.user: must be a user name of the BMC, not a:b"),
        ("port: 0", "3:19: hosts.x.bmc.port: must be between 1 and 65535, not 0"),
        (
            "identity: proven",
            "3:23: hosts.x.bmc.identity: must be unproven, or left out, not proven",
        ),
        ("timeout: 90", "3:22: hosts.x.bmc.timeout: must be text, not 90"),
        (
            "timeout: soon",
            "3:22: hosts.x.bmc.timeout: must be a time (90s, 15m, 24h, 2d), not soon",
        ),
        ("timeout: 1h", "3:22: hosts.x.bmc.timeout: must be between 1s and 30m, not 1h"),
        (
            "power_group: 'a b'",
            "3:26: hosts.x.bmc.power_group: must be a name of a power group, not a b",
        ),
        (
            "kind: ipmi",
            "3:13: bmc: x: its BMC lacks address, user, password; "
            "add it here, or to a group of the host",
        ),
        (
            f"{BMC}, ca: /c, insecure: true",
            "3:88: bmc.insecure: x: the certificate is not verified, so ca has no effect; keep one",
        ),
        (
            "kind: ipmi, ca: /c, address: b, user: u, password: {env: B}",
            "3:25: bmc.ca: x: ca is for redfish: IPMI has no TLS; remove it",
        ),
    ],
)
def test_an_invalid_bmc_is_refused_with_its_place(problems, fleet, text, problem):
    told = problems(files=fleet(f"hosts:\n  x: {{bmc: {{{text}}}}}\n"))
    assert told == [f"fleet.yaml:{problem}"]


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        "{text: hunter2}",
        "{env: hunter-2}",
        "{command: hunter2}",
        "{env: A, file: hunter2}",
        "[hunter2]",
    ],
)
def test_a_password_in_the_inventory_is_refused_and_not_shown(problems, fleet, secret):
    text = f"hosts:\n  x: {{bmc: {{password: {secret}}}}}\n"
    (told,) = problems(files=fleet(text))
    assert told == f"fleet.yaml:3:23: hosts.x.bmc.password: {WHERE}"


def test_two_hosts_with_one_bmc_are_refused(problems, fleet):
    text = f"defaults: {{bmc: {{{BMC}}}}}\nhosts: {{x,y: {{bmc: {{address: b}}}}}}\n".replace(
        "x,y", "'x,y'"
    )
    (told,) = problems(files=fleet(text))
    assert "bmc.address: y: its BMC has the same address as the BMC of x" in told


def test_a_file_that_others_may_write_runs_no_command(problems, fleet, folder):
    files = fleet(f"hosts: {{x: {{bmc: {{{BMC.replace('env: BMC', 'command: [id]')}}}}}}}\n")
    (folder / "fleet.yaml").chmod(0o666)
    (told,) = problems(files=files)
    assert "bmc.password: x: names a command, and " in told
    assert "can be written by everyone" in told


def test_a_bmc_is_read_from_ansible_and_pyinfra(hosts, problems, folder):
    variables = {
        "nodevet_bmc_kind": "redfish",
        "nodevet_bmc_address": "%h-bmc",
        "nodevet_bmc_user": "vet",
        "nodevet_bmc_password": {"env": "BMC"},
        "nodevet_bmc_port": "8443",
        "nodevet_bmc_power_group": "pdu2",
    }
    read = READ.replace("/user", "/port:8443/user").format("x-bmc") + "/power_group:pdu2"

    def ansible(**more):
        document = {"all": {"hosts": ["x"]}, "_meta": {"hostvars": {"x": variables | more}}}
        (folder / "i.json").write_text(json.dumps(document))
        return ["i.json"]

    assert hosts(files=ansible()) == [f"x {read}"]
    told = problems(files=ansible(nodevet_bmc_password="hunter2"))
    assert told and "hunter2" not in "".join(told)
    (folder / "i.py").write_text(f"g = [('x', {variables | {'nodevet_bmc_port': 8443}!r})]\n")
    assert hosts(files=["i.py"]) == [f"x {read} g,i"]
