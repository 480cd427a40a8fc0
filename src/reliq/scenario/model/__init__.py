"""
What a scenario file may say.

Two kinds of time. Values under `system.config` and `system.schedules` are *product time*, divided
by `timescale` when the processes start: a lease of `5m` at timescale 1000 lasts 300 ms. All
others are real, or a multiple of a product setting (`2.5*lease`), so that a file survives a
change of its scale.

    times.py     durations of both kinds
    system.py    what is under test, and the upstream it calls
    matching.py  patterns of entries of the history
    steps.py     the load, the harm, and when
    expect.py    the promises, and what must have happened
    scenario.py  one file
"""

from reliq.scenario.model.expect import Always, Expect, Never, Sometimes
from reliq.scenario.model.matching import Pattern, Quantity, Trigger
from reliq.scenario.model.scenario import Scenario
from reliq.scenario.model.steps import Do, Load, Step, When
from reliq.scenario.model.system import Config, Processes, Reply, Rule, System
from reliq.scenario.model.times import Length

__all__ = [
    "Always", "Config", "Do", "Expect", "Length", "Load", "Never", "Pattern", "Processes",
    "Quantity", "Reply", "Rule", "Scenario", "Sometimes", "Step", "System", "Trigger", "When",
]  # fmt: skip
