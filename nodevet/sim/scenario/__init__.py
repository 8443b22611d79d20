"""Scenario YAML → nodes. Templates, nodesets, XML and captured trees, faults by name."""

from nodevet.sim.scenario.change import changed
from nodevet.sim.scenario.describe import describe
from nodevet.sim.scenario.errors import ScenarioError
from nodevet.sim.scenario.library import find, shipped
from nodevet.sim.scenario.read import load, load_scenario
from nodevet.sim.scenario.spec import Loaded, NodeSpec

__all__ = [
    "Loaded",
    "NodeSpec",
    "ScenarioError",
    "changed",
    "describe",
    "find",
    "load",
    "load_scenario",
    "shipped",
]
