# Hosts in a pyinfra inventory:  nodevet check -i inventories/pyinfra.py
#
# Each list is a group. A host is a name, or (name, data); a group with data is
# (hosts, data). group_data/GROUP.py beside this file may also hold the data of
# a group, and group_data/all.py the data of every host.
#
# nodevet reads ssh_hostname, ssh_port, ssh_user, ssh_key, _sudo, and its own
# nodevet_root, nodevet_python and others. It runs this file as a program.

h100 = [f"gpu{number:03d}" for number in range(1, 65)]

a100 = (
    [
        "gpu065",
        ("gpu066", {"ssh_hostname": "10.20.1.66", "ssh_port": 2222}),
        "@ssh/gpu067",
    ],
    {"ssh_key": "/etc/nodevet/keys/a100"},
)

login = ["@local"]
