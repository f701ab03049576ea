"""The cost of a stop: checkpoint, restart and restore.

The state of a training job that uses Adam is its weights and two moments in 32 bits, 12 bytes a parameter (Kingma and Ba,
"Adam", ICLR 2015; the layout of `torch.optim.Adam`). It is written once and read once, and the job's processes and libraries
start again. Every part can be overridden; the report of a run states what it assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import IntColumn
from policies.state.pair_ratios import key_of
from simulator.traces.trace import NS_PER_S, Trace

PARAMETERS_M = {
    "alexnet": 61.1,
    "bert": 340.0,
    "cyclegan": 28.3,
    "deepspeech": 38.0,
    "deepspeech2": 38.0,
    "dlrm": 540.0,
    "gpt2": 1542.0,
    "inception3": 23.8,
    "inceptionv3": 23.8,
    "lm": 120.0,
    "mobilenetv2": 3.5,
    "resnet-18": 11.7,
    "resnet-50": 25.6,
    "resnet18": 11.7,
    "resnet50": 25.6,
    "transformer": 65.0,
    "vgg16": 138.4,
    "vgg19": 143.7,
}
"""Millions of parameters, as the papers that introduced the models give them."""
_MILLIONS = {key_of(name): millions for name, millions in PARAMETERS_M.items()}
BYTES_PER_PARAMETER = 12


@dataclass(frozen=True, slots=True)
class StopCosts:
    """The time that a stop keeps a job from its work."""

    restart_s: float = 20.0
    """Starting processes, loading libraries, and the rendezvous."""
    storage_gbyte_s: float = 1.0
    """Throughput to and from the checkpoint store."""
    unknown_parameters_m: float = 100.0
    """Parameters of a model that is not in the table."""

    def seconds(self, model: str) -> float:
        """Return the seconds of checkpoint, restart and restore for a job that trains that model."""
        millions = _MILLIONS.get(key_of(model), self.unknown_parameters_m)
        gbytes = millions * 1e6 * BYTES_PER_PARAMETER / 1e9
        return self.restart_s + 2 * gbytes / self.storage_gbyte_s

    def column(self, trace: Trace) -> IntColumn:
        """Return the cost of a stop for every job of a trace, in ns."""
        by_model = {model: round(self.seconds(model) * NS_PER_S) for model in set(trace.model)}
        return np.fromiter((by_model[model] for model in trace.model), dtype=np.int64, count=len(trace))
