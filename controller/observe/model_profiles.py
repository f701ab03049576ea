"""Profiles of models, as policies read them: computing time, bytes, overlap, speeds by locality, losses beside neighbours, and
speeds of NICs.

They come from the store of profiles, by the rows to which the simulator is fitted (fit_rows.py). A running job has the model
that agents report, and keeps the last one while it waits or is not measured. A job that was never measured has the model that the
last reported job of the same user and name trained, since the controller started. All other jobs, and models that were not
measured, have no profile; policies use typical values for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from controller.observe.job_row import JobRow
from controller.profiles.current import ContentionByRun, run_of
from controller.profiles.racks import ONE_RACK, Racks
from controller.profiles.reader import ProfileReader
from controller.profiles.windows import RunShape, Throughput, Trained
from controller.slurm.model.job import SlurmJob
from policies.model import ClusterState, Pairs, ProfileTable
from policies.placement.locality_tiers import NUM_TIERS
from policies.state.pair_ratios import Pair, key_of, mean_losses

if TYPE_CHECKING:
    from controller.profiles.fit_rows import Names

_Seen = tuple[Trained, RunShape]
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class KnownModels:
    """Profiles of one reading of the store. Invariant: columns have one entry per model."""

    names: Names
    """Names of the rows: `models`, `localities`, `placed` and `pairs` have no others."""
    models: tuple[str, ...]
    compute_s: tuple[float, ...]
    bytes: tuple[float, ...]
    """NaN: no profile of the model shows communication."""
    overlap: tuple[float, ...]
    localities: Mapping[str, tuple[float, float, float, float]]
    """Throughput of a model at each locality tier, relative to the first; only of models measured at several tiers."""
    placed: frozenset[tuple[str, int, int]]
    """Model, number of GPUs and locality tier of all runs without neighbours."""
    racks: Racks
    pairs: Mapping[Pair, float]
    nic_gbyte_s: Mapping[str, float]
    """Speed of the NIC by node, GB/s."""

    @staticmethod
    def of(store: ProfileReader, since_s: float, racks: Racks = ONE_RACK) -> KnownModels:
        """Return the profiles measured since then, with localities by these racks. Raises sqlite3.Error."""
        # Imported here, after agents have reported, so that a start does not wait for the simulator's models.
        from controller.profiles.fit_rows import rows
        from controller.profiles.localities import locality_curves, measured

        found = rows(store, since_s=since_s)
        ratios: dict[Pair, list[float]] = defaultdict(list)
        for pair in found.pairs:
            ratios[key_of(pair.target), key_of(pair.other)].append(pair.ratio)
        windows = [item for item in store.throughputs(since_s) if item.trained.signature]
        placed = measured(windows, racks.of, found.names)
        return KnownModels(
            names=found.names,
            models=tuple(row.model for row in found.models),
            compute_s=tuple(row.compute_s for row in found.models),
            bytes=tuple(row.bytes for row in found.models),
            overlap=tuple(row.overlap for row in found.models),
            localities=locality_curves(placed),
            placed=frozenset(placed),
            racks=racks,
            pairs={pair: median(values) for pair, values in ratios.items() if median(values) > 0},
            nic_gbyte_s=store.nic_gbyte_s(),
        )

    def has(self, window: Throughput) -> bool:
        """Return whether the model of that window was measured and, where the window shows a speed by locality, at that tier."""
        from controller.profiles.localities import tier_of

        model, gpus = self.names.of(window.trained, window.shape), window.shape.gpus
        if model not in self.models:
            return False
        shows_locality = window.alone and gpus > 1
        return not shows_locality or (model, gpus, tier_of(window.nodes, self.racks.of)) in self.placed

    def profiles(self, jobs: Sequence[_Seen | None]) -> ProfileTable:
        """Return the profiles for jobs that train these models; None: not known."""
        row = {model: place for place, model in enumerate(self.models)}
        of_job = [-1 if seen is None or not seen[0].signature else row.get(self.names.of(*seen), -1) for seen in jobs]
        count, losses = len(self.models), mean_losses(self.pairs)
        return ProfileTable(
            models=self.models,
            of_job=np.array(of_job, dtype=np.int64),
            locality=np.array(
                [self.localities.get(model, (nan,) * NUM_TIERS) for model in self.models], dtype=np.float64
            ).reshape(count, NUM_TIERS),
            bytes_per_step=np.array(self.bytes, dtype=np.float64),
            compute_s=np.array([value if value > 0 else nan for value in self.compute_s], dtype=np.float64),
            cpu_cores=np.full(count, nan),
            pcie_gbyte_s=np.full(count, nan),
            overlap=np.array(self.overlap, dtype=np.float64),
            neighbour_loss=np.array([losses.get(key_of(model), nan) for model in self.models], dtype=np.float64),
            pairs=Pairs.of(self.pairs) if self.pairs else None,
        )


class ModelColumns:
    """Adds the profiles of models to states. It remembers the last reported model of each job, and of each user and job name."""

    def __init__(self) -> None:
        self._own: dict[int, _Seen] = {}
        """What each job has trained last, by Slurm's number. Bound: the jobs of one snapshot."""
        self._last: dict[Hashable, _Seen] = {}
        """What jobs of each user and name have trained last. Bound: `_MOST_REMEMBERED`, and the jobs of one
        snapshot."""

    def added(
        self,
        state: ClusterState,
        visible: Sequence[JobRow],
        jobs: Collection[SlurmJob],
        measured: ContentionByRun,
        known: KnownModels | None,
    ) -> ClusterState:
        """Return the state with the profiles of its jobs' models, in the order of `visible`; unchanged where none are known.

        `jobs`: all jobs of the snapshot.
        """
        if known is None:
            return state
        if len(self._last) > _MOST_REMEMBERED:
            self._last.clear()
        trained = self._trained(visible, jobs, measured)
        nic = np.array([known.nic_gbyte_s.get(name, nan) for name in state.nodes.names], dtype=np.float64)
        added = replace(state, profiles=known.profiles(trained)) if known.models else state
        if np.isnan(nic).all():
            return added
        return replace(added, nodes=replace(state.nodes, nic_gbyte_s=nic))

    def _trained(
        self, visible: Sequence[JobRow], jobs: Collection[SlurmJob], measured: ContentionByRun
    ) -> list[_Seen | None]:
        """Return what each job of `visible` trains, as far as it is known, and remember it."""
        found: list[_Seen | None] = []
        before, self._own = self._own, {}
        for row in visible:
            run = run_of(row.job)
            its = None if run is None else before.get(run.job_id)
            if run is not None and run in measured:
                window = measured[run].window
                its = self._last[row.owner_and_name] = window.trained, window.shape
            if run is not None and its is not None:
                self._own[run.job_id] = its
            found.append(self._last.get(row.owner_and_name) if its is None else its)
        if unseen := before.keys() - self._own.keys():
            # policies do not see a job that was requeued a second ago, or that is held for a while
            self._own |= {number: before[number] for number in unseen & {job.raw_id for job in jobs}}
        return found
