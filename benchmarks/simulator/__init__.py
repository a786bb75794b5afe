"""A simulated VLM server with continuous batching, for measurements and tests that need no model."""

from benchmarks.simulator.client import Simulator, SimulatorError
from benchmarks.simulator.config import Fault, FaultRule, SimulatorConfig
from benchmarks.simulator.layout import DEFAULT_PAGE, Block, layout_text
from benchmarks.simulator.script import DEFAULT_OUTPUTS, Kind, Output, Rule, Script
from benchmarks.simulator.stats import Stats

__all__ = [
    "DEFAULT_OUTPUTS",
    "DEFAULT_PAGE",
    "Block",
    "Fault",
    "FaultRule",
    "Kind",
    "Output",
    "Rule",
    "Script",
    "Simulator",
    "SimulatorConfig",
    "SimulatorError",
    "Stats",
    "layout_text",
]
