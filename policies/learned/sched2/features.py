"""What a state says about every server and every candidate, worked out before anything is learned.

None of it is new in principle: the state has it all. But that a job fits on a server where the g-th GPU comes free in no time,
where packing would put it then, how long it would run there, and when it could have its best locality, would be hard to find out
from rewards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.learned.sched2.layout import JOB_NUMBERS, REST_NUMBERS, Layout
from policies.learned.sched2.placements import NUM_PLACEMENTS

NEVER_H = 48.0
"""Hours after which a GPU that is not there comes free."""
OF_SERVER = 3
"""Numbers of a server besides the hours of its GPUs."""
OF_JOB = 27
SIZES = 5
"""The last of them: a flag for jobs of 1, of 2, up to 4, up to a node, and of more GPUs."""
OF_ALL = REST_NUMBERS + 1
"""Of the rest of the queue, and of the cluster."""
_SHORTEST_H = 0.02


@dataclass(frozen=True)
class Shape:
    """Where what stands in a row of features."""

    layout: Layout

    @property
    def servers(self) -> int:
        """Numbers of a server."""
        return self.layout.gpus + OF_SERVER

    @property
    def size(self) -> int:
        """Of a row."""
        return self.layout.nodes * self.servers + self.layout.candidates * (OF_JOB + 1) + OF_ALL

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Servers (batch, N, .), candidates (batch, J, OF_JOB), the server that packing takes first of each, and the rest."""
        layout = self.layout
        first = layout.nodes * self.servers
        second = first + layout.candidates * OF_JOB
        return (
            rows[:, :first].view(-1, layout.nodes, self.servers),
            rows[:, first:second].view(-1, layout.candidates, OF_JOB),
            rows[:, second:-OF_ALL].long(),
            rows[:, -OF_ALL:],
        )


def features(layout: Layout, states: Tensor) -> Tensor:
    """A row for each state, see `Shape`."""
    cells = layout.nodes * layout.gpus
    gpus = states[:, :cells].view(-1, layout.nodes, layout.gpus)
    jobs = states[:, cells : cells + layout.candidates * JOB_NUMBERS].view(-1, layout.candidates, JOB_NUMBERS)
    absent = gpus < 0
    hours = torch.where(absent, NEVER_H, gpus).sort(2).values
    free = (gpus == 0).sum(2)
    counts = torch.stack([free / layout.gpus, (free == layout.gpus).float(), absent.sum(2) / layout.gpus], 2)
    servers = torch.cat([torch.log1p(hours), counts], 2)
    rest = torch.log1p(states[:, -REST_NUMBERS:])
    own, first = _of_jobs(layout, hours, free, jobs, rest[:, :1])
    total = free.sum(1, keepdim=True) / cells
    return torch.cat([servers.flatten(1), own.flatten(1), first.float(), rest, total], 1)


def _of_jobs(layout: Layout, hours: Tensor, free: Tensor, jobs: Tensor, queue: Tensor) -> tuple[Tensor, Tensor]:
    """What is known of each candidate, and the server that packing would take first."""
    times, size, waited = jobs[:, :, :NUM_PLACEMENTS], jobs[:, :, NUM_PLACEMENTS], jobs[:, :, NUM_PLACEMENTS + 1]
    gpus = (size * layout.gpus).round().long()
    ideal = times[:, :, 0]
    first, is_whole = _first_server(layout, free, gpus)
    is_small = gpus <= layout.gpus
    is_spread = is_small & ~is_whole
    now = torch.where(is_spread, times[:, :, 1], ideal)
    # The hour in which some server has GPUs enough for the whole job.
    place = (gpus.clamp(1, layout.gpus) - 1).unsqueeze(1).expand(-1, layout.nodes, -1)
    local = hours.gather(2, place).amin(1)
    # The hour in which the first server would be empty.
    there = hours.gather(1, first.unsqueeze(2).expand(-1, -1, layout.gpus))
    clears = torch.where(there < NEVER_H, there, 0.0).amax(2)
    room = free.gather(1, first)
    is_empty = room == layout.gpus
    least = ideal.clamp(min=_SHORTEST_H)
    breaks = is_empty & (gpus < layout.gpus)
    empties = (free == layout.gpus).sum(1, keepdim=True)
    large = (gpus >= layout.gpus).sum(1, keepdim=True)
    flags = [gpus == 1, gpus == 2, (gpus > 2) & (gpus <= 4), (gpus > 4) & is_small, ~is_small & (gpus > 0)]
    columns = [
        torch.log(least),
        torch.log(now.clamp(min=_SHORTEST_H)),
        size,
        (times[:, :, 1] / least).clamp(1.0, 10.0).log(),
        torch.log1p(waited / least),
        torch.log1p(waited),
        is_spread,
        (now - ideal).clamp(max=10.0) / 4,
        torch.log1p(local) * is_small,
        (now - ideal - local).clamp(-8.0, 8.0) / 4 * is_spread,
        (now - clears).clamp(-8.0, 8.0) / 4,
        (now - clears).clamp(0.0, 8.0) / 4 * ~is_empty,
        torch.log1p(clears),
        (room - gpus).clamp(min=0) / layout.gpus * ~is_empty,
        torch.log2(gpus.clamp(min=1)) / 2,
        queue * torch.log(least),
        queue * torch.log2(gpus.clamp(min=1)) / 2,
        breaks,
        breaks * (empties <= 2),
        breaks * large.clamp(max=3),
        breaks * queue,
        (gpus < layout.gpus) * large.clamp(max=5) / 4,
        *flags,
    ]
    is_job = (gpus > 0).unsqueeze(2)
    return torch.stack([column.float() for column in columns], 2) * is_job, first


def _first_server(layout: Layout, free: Tensor, gpus: Tensor) -> tuple[Tensor, Tensor]:
    """The best fit where the job fits on one server, else the freest (ties go to the lowest number); and whether it fits."""
    number = torch.arange(layout.nodes, device=free.device)
    room = (free * layout.nodes).unsqueeze(1)
    fits = free.unsqueeze(1) >= gpus.unsqueeze(2)
    best = torch.where(fits, room + number, 1 << 30).argmin(2)
    freest = (free * layout.nodes - number).argmax(1, keepdim=True)
    whole = fits.any(2)
    return torch.where(whole, best, freest), whole
