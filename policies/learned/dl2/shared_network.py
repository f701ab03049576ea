"""A network that applies the same weights to each job of a state; it is not in DL2's paper.

    e_i = relu(A x_i)                       the numbers x_i of job i
    c   = (sum of e / 8, maximum of e)      over the jobs of the state
    h_i = relu(B (e_i, c))                  B is `beside` for e_i and `beside_all` for c, which is the same for all jobs
    outputs of job i = C h_i                the output of void = D relu(E (sum of e / 8, maximum of h))

A state may have any number of jobs, in any order: the outputs of a job do not depend on its place.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.learned.dl2.state_columns import StateColumns

_USUAL_JOBS = 8
"""Jobs of a usual state: the sum over jobs is divided by it, so that it is about 1 and still tells how many there are."""


class SharedNetwork(nn.Module):
    """Outputs for each job, and one for void if wanted: (B, J * (types + 5)) -> (B, J * outputs [+ 1])."""

    def __init__(self, columns: StateColumns, neurons: int, outputs: int, *, void: bool) -> None:
        """Each layer has so many neurons."""
        super().__init__()
        self._shape = columns.shape
        self.job = nn.Linear(columns.shape[1], neurons)
        self.beside = nn.Linear(neurons, neurons)
        self.beside_all = nn.Linear(2 * neurons, neurons, bias=False)
        self.output = nn.Linear(neurons, outputs)
        nn.init.orthogonal_(self.output.weight, 0.01)
        nn.init.zeros_(self.output.bias)
        self.void = nn.Sequential(nn.Linear(2 * neurons, neurons), nn.ReLU(), nn.Linear(neurons, 1)) if void else None

    def forward(self, seen: Tensor) -> Tensor:
        """Return the outputs job by job, and void's as the last one; they are 0 in rows without a job."""
        jobs = seen.reshape(-1, *self._shape)
        rows = jobs.shape[1]
        # A job of an unknown model has no type, and still epochs left or a task. Rows without a job in all states are left out.
        is_job = (jobs.sum(2, keepdim=True) > 0).to(seen.dtype)
        present = max(int(is_job.sum((0, 2)).count_nonzero()), 1)
        if not is_job[:, present:].any():
            jobs, is_job = jobs[:, :present], is_job[:, :present]
        each = torch.relu(self.job(jobs)) * is_job
        total, most = each.sum(1) / _USUAL_JOBS, each.amax(1)
        context = self.beside_all(torch.cat([total, most], 1)).unsqueeze(1)
        hidden = torch.relu(self.beside(each) + context) * is_job
        found: Tensor = (self.output(hidden) * is_job).flatten(1)
        found = nn.functional.pad(found, (0, (rows - jobs.shape[1]) * self.output.out_features))
        if self.void is None:
            return found
        return torch.cat([found, self.void(torch.cat([total, hidden.amax(1)], 1))], 1)
