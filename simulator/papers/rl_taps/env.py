"""The environment of RL-TAPS (Ryu et al., CASCON 2020, sections 4 and 5): it gives every GPU to a job, anew in every step.

**State**, an image of 10 rows of time (`policies.learned.rl_taps.image_columns`). A column for each GPU: its job's slot, from 1 on,
in as many rows as the job would take to its end at its speed in the last step. For each of N = 10 slots 12 columns: a job with g
requested GPUs fills g of them, in as many rows as it would take on these without reductions. The backlog: a cell for each job,
60 at most. Slots are filled in order of arrival, and a job stays in its slot until it is done.

**Action**: for each GPU a slot from 1 on, or 0 for none: MultiDiscrete([11] * 32). Jobs can get any number of GPUs, also more than
they request, and are paused where they get none. GPUs of an empty slot stay free.

**Time**: steps of 48.3 s, at most Tmax = 1000; an episode is over when all jobs are done, and truncated at Tmax.

**Speeds, reward and penalties**: `speeds` and `batch`, in units of a GPU's advertised speed. **Figures**: `outcome`.

**Without preemption** (`preemption="never"`) a job keeps the GPUs with which it starts, and leaves its slot; the columns of its
GPUs then have the number of its first GPU + 1.

Not in the paper, and chosen here: the weights of the penalties (1); jobs that do not fit into the backlog's cells wait too; a job
with GPUs, but fewer than requested, pays equation 6 alone, and a job without GPUs equation 5 alone; a finish is the end of its
step. `restart_s` charges for pauses and moves, which the paper does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.cluster.cluster import Cluster
from simulator.cluster.topology.gpu_links import gpu_links
from simulator.envs.options import TraceSource, cluster_of
from simulator.envs.space_parts import SpacePart
from simulator.errors import SettingError
from simulator.papers.rl_taps.batch import RlTapsBatch
from simulator.papers.rl_taps.image import Image
from simulator.papers.rl_taps.jobs import Jobs, jobs_of
from simulator.papers.rl_taps.options import RlTapsOptions
from simulator.papers.rl_taps.outcome import outcome
from simulator.traces.trace import Trace

Actions = npt.NDArray[np.int64]
OUTCOME = "outcome"
_RESET_OPTIONS = ("trace", "trace_seed")


class World:
    """Parts that all episodes with the same options share: cluster, links, spaces, and the source of their jobs."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises SettingError for unknown or impossible options, ClusterError for a cluster that is no tree."""
        known = [each.name for each in fields(RlTapsOptions)]
        for name in options:
            if name not in known:
                raise SettingError(f"there is no option {name!r}; the options are {', '.join(known)}")
        self.options = RlTapsOptions(**options)
        self.cluster: Cluster = cluster_of(self.options.cluster)
        self.links = gpu_links(self.cluster.topology)
        self._source = TraceSource(self.options.traces, self.cluster)

    def batch(self, count: int) -> RlTapsBatch:
        """Return so many clusters, in which no episode has begun."""
        return RlTapsBatch(self.options, self.links, count)

    def brightest(self, batch: RlTapsBatch) -> int:
        """Return the largest colour: jobs have different ones."""
        return max(batch.columns.gpus, batch.options.slots)

    def spaces(self, batch: RlTapsBatch) -> tuple[gymnasium.Space[Image], gymnasium.spaces.MultiDiscrete]:
        """Return the spaces of observations and actions."""
        gpus, choices = batch.columns.actions
        seen: Any = gymnasium.spaces.Box(0, self.brightest(batch), batch.columns.shape, np.uint8)
        return seen, gymnasium.spaces.MultiDiscrete([choices] * gpus)

    def jobs(self, rng: np.random.Generator, asked: Mapping[str, Any]) -> Jobs:
        """Return the jobs of the next episode, as `reset` was asked."""
        return jobs_of(self._trace(rng, asked), self.options)

    def _trace(self, rng: np.random.Generator, asked: Mapping[str, Any]) -> Trace:
        for name in asked:
            if name not in _RESET_OPTIONS:
                raise SettingError(f"reset has no option {name!r}; give {' or '.join(_RESET_OPTIONS)}")
        if isinstance(trace := asked.get("trace"), Trace):
            return trace
        given: dict[str, Callable[[int], Trace]] = {"trace": self._source.at, "trace_seed": self._source.of_seed}
        for name, find in given.items():
            if name in asked:
                if not isinstance(asked[name], int | np.integer):
                    raise SettingError(f"{name} is {asked[name]!r}; give a whole number")
                return find(int(asked[name]))
        return self._source.draw(rng)


class RlTapsEnv(gymnasium.Env[Image, Actions]):
    """`gymnasium.make("headway/RlTaps-v0", **options)`; the options are the fields of RlTapsOptions."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own form

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self._world = World(options)
        self.options = self._world.options
        self.batch = self._world.batch(1)
        """The one cluster, as a batch."""
        self.observation_space, self.action_space = self._world.spaces(self.batch)
        self._over = True

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the parts of the image (section 4.3, figure 1)."""
        columns, every = self.batch.columns, slice(None)
        slots, backlog = columns.first_of_slots, columns.first_of_backlog
        brightest = float(self._world.brightest(self.batch))
        gpus = "a column for each GPU: the colour of its job, in as many rows as the job has steps left"
        waiting = f"{columns.widest} columns for each of {columns.slots} waiting jobs: as wide as its GPUs, as high as its steps"
        behind = f"a cell for each job behind these, at most {columns.backlog}"
        return (
            SpacePart("GPUs", (every, slice(None, slots)), 0.0, brightest, "colour", gpus),
            SpacePart("slots", (every, slice(slots, backlog)), 0.0, 1.0, "flag", waiting),
            SpacePart("backlog", (every, slice(backlog, None)), 0.0, 1.0, "flag", behind),
        )

    def actions_text(self) -> str:
        """Return the meaning of the actions."""
        return "a number for each GPU: 0 for no job, else the slot whose job gets it for the next step"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        """Begin an episode. Options: `trace` (a Trace, or the number of one), or `trace_seed` of the workload."""
        super().reset(seed=seed)
        self.batch.begin(0, self._world.jobs(self.np_random, options or {}))
        self._over = False
        return self.batch.images()[0], {}

    def step(self, action: Actions) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Make one step with that assignment of GPUs."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        if not self.action_space.contains(np.asarray(action)):
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        reward = float(self.batch.step(np.asarray(action)[None])[0])
        terminated = bool(self.batch.is_done[0])
        truncated = not terminated and bool(self.batch.is_late[0])
        self._over = terminated or truncated
        info = {OUTCOME: outcome(self.batch, 0)} if self._over else {}
        return self.batch.images()[0], reward, terminated, truncated, info
