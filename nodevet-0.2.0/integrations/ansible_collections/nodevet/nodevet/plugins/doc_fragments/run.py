# Copyright: nodevet contributors
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Options that the modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options, requirements and notes of a run of nodevet."""

    DOCUMENTATION = r"""
requirements:
  - nodevet, on the machine that runs the module
options:
  hosts:
    description:
      - Hosts to vet, as nodesets (V(gpu[001-128])), groups of O(inventory) (V(@rack1)), or
        V(@local) for the machine that runs the module.
      - Give O(hosts), O(inventory) or both, so that a task never vets a machine that it does not
        name.
    type: list
    elements: str
  inventory:
    description:
      - Inventories of nodevet, of Ansible or of pyinfra, or groups of Slurm.
      - Without an inventory, nodevet reaches hosts by their names, as C(~/.ssh/config) says.
    type: list
    elements: str
  limit:
    description: Vet only these hosts or groups.
    type: list
    elements: str
    default: []
  baseline:
    description: Names or files of baselines. Without them, nodevet uses those of the project.
    type: list
    elements: str
    default: []
  fail_on:
    description:
      - The task fails if a check of at least this severity fails, or if nodevet could not judge
        something.
      - With V(never), the task fails only if nodevet itself could not run.
    type: str
    choices: [info, warning, critical, never]
    default: warning
  store:
    description:
      - URL of the store in which nodevet records the run, or V(none).
      - The default is that of the command line.
    type: str
  project:
    description: Folder of the project, with its baselines, checks and fixes.
    type: path
  arguments:
    description: Further options for the command line.
    type: list
    elements: str
    default: []
  executable:
    description:
      - Path or name of nodevet.
      - A name is looked up in E(PATH) and beside the Python interpreter of the module.
    type: path
    default: nodevet
attributes:
  check_mode:
    description: The module changes nothing, so it does the same in check mode.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
"""
