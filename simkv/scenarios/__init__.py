"""Scenarios: a story, the traffic and settings behind it, what comes out, and what ought to."""

from simkv.scenarios.files import find_scenario, scenario_names, scenarios
from simkv.scenarios.judge import Verdict, judge
from simkv.scenarios.load import read_scenario
from simkv.scenarios.outcome import Outcome
from simkv.scenarios.play import play
from simkv.scenarios.scenario import Expected, Scenario, Traffic, Variant, Where

__all__ = [
    "Expected",
    "Outcome",
    "Scenario",
    "Traffic",
    "Variant",
    "Verdict",
    "Where",
    "find_scenario",
    "judge",
    "play",
    "read_scenario",
    "scenario_names",
    "scenarios",
]
