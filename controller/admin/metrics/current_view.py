"""The view of the last cycle that all metrics of a scrape share."""

from __future__ import annotations

from controller.admin.explain.cycle_view import CycleView
from controller.cycle.view.controller_view import ControllerView


class CurrentView:
    """The view of the last good cycle. Invariant: one view is made for each cycle, however many metrics and scrapes read it.

    Runs in the exporter's threads: two scrapes at once may make it twice, which changes nothing. It is not the view of the Admin
    service, because a view computes values at their first use, and that one is used in the event loop.
    """

    def __init__(self, controller: ControllerView) -> None:
        self._controller = controller
        self._view: CycleView | None = None

    def get(self) -> CycleView | None:
        """Return the view; None before the first good cycle."""
        last, view = self._controller.last, self._view
        if last is None:
            return None
        partitions = self._controller.settings.partitions
        if view is None or view.result is not last or view.partitions != frozenset(partitions):
            view = self._view = CycleView(last, self._controller.ledger, partitions)
        return view
