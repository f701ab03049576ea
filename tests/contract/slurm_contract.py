"""The one contract that every SlurmClient keeps, whatever Slurm is behind it.

Subclass `SlurmContract` in a test module, and give it a fixture `bench` that yields a fresh `SlurmBench`: no jobs, every node
idle. The bench's cluster may live longer than one test.
"""

from __future__ import annotations

from tests.contract.bench import Order, SlurmBench, held_gpus, job_of
from tests.contract.holding import Holding
from tests.contract.placing import Placing
from tests.contract.reading import Reading
from tests.contract.stopping import Stopping

__all__ = ["Order", "SlurmBench", "SlurmContract", "held_gpus", "job_of"]


class SlurmContract(Reading, Holding, Placing, Stopping):
    """Every promise of controller/slurm/client.py, as test stories."""
