"""Hosts leave as a dynamic inventory of Ansible, and come back as they were."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodevet.inventory.sources.ansible_json import parse
from nodevet.inventory.to_ansible import ansible_document
from nodevet.model import Bmc, Host

PATHS = st.sampled_from(["/etc/keys/a", "/srv/known hosts"])
OPTIONAL: dict[str, Any] = {
    "address": st.sampled_from(["10.0.0.1", "fd00::1", "gw.example.com"]),
    "port": st.integers(1, 65535),
    "user": st.sampled_from(["root", "ops", "123"]),
    "key_file": PATHS,
    "known_hosts": PATHS,
    "root": st.just("/srv/root"),
    "whole_machine": st.booleans(),
    "python": st.just("/opt/python3"),
    "sudo": st.booleans(),
    "expect_hostname": st.sampled_from([True, False, "other"]),
    "bmc": st.builds(
        Bmc,
        kind=st.just("redfish"),
        address=st.just("10.2.0.7"),
        user=st.just("vet"),
        password=st.sampled_from([("file", "/pw"), ("env", "PW"), ("command", ("pass", "bmc"))]),
        insecure=st.booleans(),
        port=st.none() | st.just(8443),
    ),
}
GROUPS = st.frozensets(st.sampled_from(["h100", "rack1", "a:b/c"]))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["gpu1", "gpu2", "fd00::7"]), "groups": GROUPS},
            optional=OPTIONAL,
        ),
        min_size=1,
        unique_by=lambda fields: fields["name"],
    )
)
def test_ansible_gets_all_that_nodevet_knows(fields: list[dict[str, Any]]) -> None:
    hosts = [Host(**each) for each in fields]
    read = parse(json.dumps(ansible_document(hosts)), "x.json")
    assert [entry.host() for entry in read.entries] == hosts


def test_this_machine_is_local() -> None:
    (entry,) = parse(json.dumps(ansible_document([Host(name="here", local=True)])), "x").entries
    assert entry.host() == Host(name="here", local=True)


def test_ansible_gets_the_known_hosts_file_of_a_host() -> None:
    document = ansible_document([Host(name="gpu1", known_hosts="/srv/known hosts")])
    arguments = document["_meta"]["hostvars"]["gpu1"]["ansible_ssh_common_args"]
    assert arguments == """-o 'UserKnownHostsFile="/srv/known hosts"'"""
