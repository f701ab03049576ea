"""A policy server that serves the policy `sched2` and records what its agent sees: recording_policy ADDRESS FILE.

FILE gets one JSON object in a line for each decision: `localities`, the throughput of each measured model at each tier; `waiting`,
for each waiting job by its id, its hours under the k = 4 placements; and `started`, for each started job by its id, its nodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from policies.api import Decision, load_policy
from policies.learned.sched2.encoder import Encoder, Encoding
from policies.learned.sched2.state.placements import NUM_PLACEMENTS
from policies.model import ClusterState
from policies.serving.server import serve


class Recording:
    """The policy, with a record of its decisions."""

    def __init__(self, file: Path) -> None:
        self._policy = load_policy("sched2")
        self._encoder = Encoder(Encoding())
        self._file = file
        self.spec = self._policy.spec

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision."""
        decision = self._policy.decide(state)
        view = self._encoder.observe(state)
        _, rows, _ = self._encoder.encoding.columns.split(view.array())
        ids, names = state.jobs.ids, state.nodes.names
        profiles = state.profiles
        record = {
            "localities": {}
            if profiles is None
            else dict(zip(profiles.models, profiles.locality.tolist(), strict=True)),
            "waiting": {
                str(ids[row]): rows[place, :NUM_PLACEMENTS].tolist() for place, row in enumerate(view.candidates)
            },
            "started": {
                str(ids[row]): [names[node] for node in placement.nodes]
                for row, placement in decision.allocation.items()
                if row in state.pending
            },
        }
        with self._file.open("a") as out:
            out.write(json.dumps(record) + "\n")
        return decision


if __name__ == "__main__":
    asyncio.run(serve(Recording(Path(sys.argv[2])), sys.argv[1]))
