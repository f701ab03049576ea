"""The controller as the sockets of the Admin service see it: answers that are prepared once for every caller."""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib.metadata import version

from controller.admin.explain.advice_text import advice_messages
from controller.admin.explain.cycle_view import Scene
from controller.admin.messages import agents_status, cluster, queue_entries, status
from controller.admin.profile_messages import Running, now
from controller.contention.measurement import Measuring
from controller.contention.service import Judging
from controller.cycle.controller_view import ControllerView
from controller.profiles.current import Known
from protos.headway.v1 import admin_pb2

_LINES_AT_ONCE = 100


class Viewer:
    """The controller as both sockets see it.

    Invariant: what takes time is made once per cycle, however many ask for it, and never keeps the event loop for long.
    """

    def __init__(
        self, controller: ControllerView, measurement: Measuring | None = None, contention: Judging | None = None
    ) -> None:
        """Without agents nothing is measured; without `contention` there is no advice."""
        self.controller = controller
        self.measurement = measurement
        self.contention = contention
        self.watchers: Counter[int | None] = Counter()
        """Calls of WatchEvents by uid; None: through admin.sock."""
        self._scene: Scene | None = None
        self._cluster = admin_pb2.Status()
        self._queue: tuple[Scene, admin_pb2.Queue] | None = None
        self._making = asyncio.Lock()

    def scene(self) -> Scene | None:
        """The last good cycle; None before the first."""
        last = self.controller.last
        if last is not None and (self._scene is None or self._scene.result is not last):
            self._scene = Scene(last, self.controller.ledger, self.controller.settings.partitions)
            self._cluster = cluster(self._scene)
        return self._scene

    def status(self) -> admin_pb2.Status:
        """How everything is; without jobs and nodes before the first cycle."""
        self.scene()
        message = status(self.controller, version("headway-scheduler"))
        message.MergeFrom(self._cluster)
        message.advice.extend(advice_messages(self.contention))
        message.agents.CopyFrom(agents_status(self.measurement, [node.name for node in self._cluster.nodes]))
        return message

    def running(self, known: Known) -> Running:
        """What is told of the jobs of which something is known."""
        scene = self.scene()
        if scene is None:
            return {}
        return {run: now(scene.called(run.job_id), found, scene.beside(found)) for run, found in known.items()}

    async def queue(self, scene: Scene) -> admin_pb2.Queue:
        """The listing, made a hundred lines at a time: ten thousand at once take longer than a decision may wait."""
        async with self._making:
            if self._queue is None or self._queue[0] is not scene:
                message = admin_pb2.Queue()
                for number, entry in enumerate(queue_entries(scene, self.controller.clock.now()), start=1):
                    message.entries.append(entry)
                    if number % _LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                self._queue = scene, message
            return self._queue[1]
