"""An emulated Slurm in this process: the same verbs, states and delays as a real one, on a real or a virtual clock.
Imports `base`, `slurm/birthmark`, `slurm/client`, `slurm/model`, `slurm/updates` and `slurm/user_holds`; of other packages
`policies` and `simulator`.

Its behaviour was measured on Slurm 22.05.8, and the contract suite (tests/contract) runs the same tests on both. Not
emulated: fair share and multifactor priorities, preemption by partition or QOS, job steps, federation, and GPUs of several
types on one node.
"""

from __future__ import annotations

from controller.slurm.embedded.client import EmbeddedClient
from controller.slurm.embedded.cluster import EmbeddedSlurm
from controller.slurm.embedded.ctld.job import Submission, sbatch_request
from controller.slurm.embedded.description import (
    ClusterDescription,
    Delays,
    GpuLimit,
    JobDescription,
    NodeDescription,
    PartitionDescription,
)
from controller.slurm.embedded.loading import load_cluster
from controller.slurm.embedded.opening import open_embedded

__all__ = [
    "ClusterDescription",
    "Delays",
    "EmbeddedClient",
    "EmbeddedSlurm",
    "GpuLimit",
    "JobDescription",
    "NodeDescription",
    "PartitionDescription",
    "Submission",
    "load_cluster",
    "open_embedded",
    "sbatch_request",
]
