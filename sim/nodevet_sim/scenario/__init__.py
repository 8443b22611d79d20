"""Scenario YAML → nodes. Templates, nodesets, XML and captured trees, faults by name."""

from nodevet_sim.scenario.change import changed
from nodevet_sim.scenario.describe import describe
from nodevet_sim.scenario.errors import ScenarioError
from nodevet_sim.scenario.hidden import hidden_by
from nodevet_sim.scenario.library import find, shipped_scenarios
from nodevet_sim.scenario.read import load, load_scenario
from nodevet_sim.scenario.spec import LoadedScenario, NodeSpec

__all__ = [
    "LoadedScenario",
    "NodeSpec",
    "ScenarioError",
    "changed",
    "describe",
    "find",
    "hidden_by",
    "load",
    "load_scenario",
    "shipped_scenarios",
]
