"""Simulations: a program in a cluster in memory, in virtual time, with faults by a seed.

    Simulation   many runs, and the smallest failure; the pytest fixture `simulation`
    Cluster      what workload, invariants and `eventually` see
    STRATEGIES   mixes of faults

`SimulatedLoop` is the event loop, `SimulatedClient` the client whose requests are struck,
`Schedule` decides by what.
"""

from aioinformer.testing.simulation.explore import (
    Report,
    Simulation,
    SimulationFailed,
)
from aioinformer.testing.simulation.run import Cluster, Outcome
from aioinformer.testing.simulation.schedule import STRATEGIES, Fault, Strategy

__all__ = [
    "STRATEGIES",
    "Cluster",
    "Fault",
    "Outcome",
    "Report",
    "Simulation",
    "SimulationFailed",
    "Strategy",
]
