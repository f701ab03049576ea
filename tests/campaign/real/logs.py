"""Errors of Headway's own in the logs of its processes: a traceback is a defect, whatever the fault was."""

from __future__ import annotations

from collections.abc import Iterator

from tests.campaign.real.world import World

_PROCESSES = ("controller", "watchdog", "policy", "other")
_SHOWN = 4000


class OwnErrors:
    """Tracebacks since the story began."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before = {name: len(text) for name, text in self._texts()}

    def found(self) -> Iterator[str]:
        """Yield the part of each log that holds a traceback, for the first of each process."""
        for name, text in self._texts():
            new = text[self._before.get(name, 0) :]
            at = new.find("Traceback (most recent call last)")
            if at >= 0:
                yield f"the log of the {name}: {new[max(at - 500, 0) : at + _SHOWN]}"

    def _texts(self) -> Iterator[tuple[str, str]]:
        headway = self._world.headway
        yield from ((name, headway.log(name)) for name in _PROCESSES)
        yield from ((f"agent of {node}", headway.agents.log(node)) for node in self._world.cluster.node_names)
