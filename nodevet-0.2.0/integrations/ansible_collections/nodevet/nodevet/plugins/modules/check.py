#!/usr/bin/python
# Copyright: nodevet contributors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Vet hosts against their baselines."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check
short_description: Vet GPU nodes against their baselines
version_added: 0.2.0
description:
  - Runs C(nodevet check) and returns what differs from the baselines.
  - Run it on the controller, which vets nodes over SSH, or on a node, which vets itself
    (V(@local)).
author:
  - nodevet contributors (@nodevet)
extends_documentation_fragment:
  - nodevet.nodevet.run
options:
  only:
    description: Judge only these checks. Such a run is not recorded.
    type: list
    elements: str
    default: []
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
- name: Vet this node over SSH, and continue only if it passes
  nodevet.nodevet.check:
    hosts: "{{ inventory_hostname }}"
    inventory: fleet.yaml
    baseline: site.yaml
  delegate_to: localhost

- name: Vet all nodes of the play at once
  nodevet.nodevet.check:
    hosts: "{{ ansible_play_hosts }}"
    inventory: fleet.yaml
    fail_on: never
  delegate_to: localhost
  run_once: true
  register: vetted

- name: Group them by their verdicts
  ansible.builtin.group_by:
    key: "nodevet_{{ vetted.hosts[inventory_hostname].verdict }}"

- name: Let a node vet itself
  nodevet.nodevet.check:
    hosts: "@local"
    executable: /opt/nodevet/bin/nodevet
  become: true
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
    """Vet the hosts, and return the differences."""
    only = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "only": only},
        required_one_of=[("hosts", "inventory")],
        supports_check_mode=True,
    )
    module.params["arguments"] += [f"--only={check}" for check in module.params["only"]]
    run(module, "check", ())


if __name__ == "__main__":
    main()
