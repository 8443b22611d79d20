#!/usr/bin/python
# Copyright: nodevet contributors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Wait until nodes are up and pass."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Wait until GPU nodes are up and pass
version_added: 0.2.0
description:
  - Runs C(nodevet gate), which vets each host again and again until it passes or O(wait) is over.
  - Use it after a boot or a driver update, before a node takes jobs.
author:
  - nodevet contributors (@nodevet)
extends_documentation_fragment:
  - nodevet.nodevet.run
options:
  wait:
    description: How long a host may take to come up and pass, such as V(10m).
    type: str
    default: 10m
  settle:
    description: Ignore the results of a host until it has been up this long.
    type: str
    default: 30s
  interval:
    description: Wait this long between two attempts.
    type: str
    default: 10s
notes:
  - V(@local) is the machine that runs the module. Never combine it with C(delegate_to): nodevet
    would then vet the controller instead of the node.
  - Ansible sets facts only if the task does not fail. A registered variable holds the result in any
    case.
seealso:
  - name: nodevet and Ansible
    description: The page about this collection.
    link: https://github.com/nodevet/nodevet/blob/main/docs/integrations/ansible.md
"""

EXAMPLES = r"""
- name: Reboot the node
  ansible.builtin.reboot:

- name: Wait until it passes
  nodevet.nodevet.gate:
    hosts: "{{ inventory_hostname }}"
    inventory: fleet.yaml
    baseline: site.yaml
    wait: 15m
  delegate_to: localhost
"""

RETURN = r"""
verdict:
  description: The worst verdict of all hosts, V(failing), V(unknown) or V(ok).
  returned: unless nodevet could not run
  type: str
  sample: failing
failing:
  description: Names of the checks that fail on any host, at any severity.
  returned: unless nodevet could not run
  type: list
  elements: str
  sample: [power_limit]
run:
  description: Id of the run, for other commands of nodevet.
  returned: unless nodevet could not run
  type: str
  sample: 20261124T180813.454Z-74450185
hosts:
  description: The result of each host, by its name.
  returned: unless nodevet could not run
  type: dict
  contains:
    verdict:
      description: Verdict of the host, V(failing), V(unknown) or V(ok).
      returned: always
      type: str
    status:
      description: How the visit ended, such as V(vetted) or V(unreachable).
      returned: always
      type: str
    why:
      description: Why the host was not vetted; empty if it was.
      returned: always
      type: str
    baseline:
      description: Name of the baseline that judged the host.
      returned: always
      type: str
    failing:
      description: Names of the checks that fail.
      returned: always
      type: list
      elements: str
    findings:
      description: What differs, as in C(nodevet check --format json).
      returned: always
      type: list
      elements: dict
exit_code:
  description: Exit code of nodevet.
  returned: always
  type: int
cmd:
  description: The command that ran.
  returned: always
  type: list
  elements: str
ansible_facts:
  description: RV(verdict), RV(failing) and RV(run), as the fact C(nodevet).
  returned: if the task does not fail
  type: dict
  contains:
    nodevet:
      description: Verdict, failing checks and id of the last run.
      returned: always
      type: dict
      sample: {verdict: ok, failing: [], run: 20261124T180813.454Z-74450185}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodevet.nodevet.plugins.module_utils.run import ARGUMENTS, run


def main():
    """Wait until the hosts pass, and return the differences."""
    times = {"wait": "10m", "settle": "30s", "interval": "10s"}
    own = {name: {"type": "str", "default": usual} for name, usual in times.items()}
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, **own},
        required_one_of=[("hosts", "inventory")],
        supports_check_mode=True,
    )
    run(module, "gate", tuple(times))


if __name__ == "__main__":
    main()
