"""The weights in service: those of the learning folder, or the ones that the policy began with.

    best/       weights and card that were promoted last
    previous/   those before them

Weights are read by their digests: damaged ones are never served, and the next in this order take their place.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from policies.errors import PolicyError, WeightsError
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.system import ENCODER, NAME, trained_network
from policies.learned.evaluation import promotion
from policies.learned.evaluation.promotion import BEST, PREVIOUS
from policies.learned.training.run.folder_lock import alone
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that were read and checked."""

    network: DL2Network
    columns: StateColumns
    card: ModelCard
    folder: str
    """Folder of the files; empty: those that come with Headway."""
    since_s: float
    """Time at which they came into service by a promotion or an undo, Unix time; 0 for those that the policy began with."""
    problem: str = ""
    """Why others were not taken; empty if they were the first choice."""


class ServiceFolder:
    """The weights in service of one policy. Invariant: `load` returns sound weights, or raises as without the folder."""

    def __init__(self, folder: Path | None, first: str, shipped: str) -> None:
        """`first` is the option `weights` of the policy: those that it begins with, and `shipped` names those that are meant by
        ''. Without a folder, these are always in service."""
        self.folder = folder
        self._first = first
        self._shipped = shipped

    def load(self) -> Weights:
        """Return the weights in service. Raises WeightsError if those that the policy begins with are not sound either."""
        self._recover()
        with ExitStack() as stack:
            if self.folder is not None:
                with suppress(PolicyError, OSError):  # it is missing, or another process changes it for very long
                    stack.enter_context(alone(self.folder, promotion.WAIT_S, reads=True))
            return self._present()

    def _present(self) -> Weights:
        problem = ""
        for name in (BEST, PREVIOUS):
            if self.folder is None or not (place := self.folder / name).is_dir():
                if name == BEST:
                    break  # they were taken out of service, and `previous` waits for an undo
                continue
            try:
                return Weights(*trained_network(str(place)), str(place), place.stat().st_mtime, problem)
            except (WeightsError, OSError) as error:
                problem = problem or str(error)
        return Weights(*trained_network(self._first, self._shipped), self._first, 0.0, problem)

    def stamp(self) -> Stamp | None:
        """Return what changes whenever other weights come into service; None if there are none in the folder."""
        if self.folder is None:
            return None
        try:
            found = (self.folder / BEST / f"{NAME}.json").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def copy(self, of: Weights, folder: Path) -> str:
        """Write these weights to a folder of their own, as a training does, and return their digest.

        Raises PolicyError, OSError.
        """
        place, name = weights.located(of.folder, NAME, self._shipped)
        arrays, card = weights.load(place, name, system=NAME, encoder=ENCODER)
        if card.weights_sha256 != of.card.weights_sha256:
            raise WeightsError(f"{place}: the weights in service have just changed")
        return weights.save(folder / BEST, NAME, arrays, card).weights_sha256

    def promote(self, candidate: Path, digest: str, like: Weights) -> Weights:
        """Put the candidate into service if it is the one with that digest, and return it. Raises PolicyError, OSError."""
        assert self.folder is not None
        _, columns, card = trained_network(str(candidate / BEST))
        if card.weights_sha256 != digest:
            raise WeightsError(f"{candidate}: its weights are not those that were compared")
        if columns != like.columns:
            raise WeightsError(f"{candidate}: it has other states than the weights in service")
        promotion.put_in_service(candidate, self.folder)
        found = self.load()
        if found.card.weights_sha256 != digest:
            raise WeightsError(f"{self.folder}: the promoted weights cannot be read again ({found.problem})")
        return found

    def _recover(self) -> None:
        """Complete a promotion that was interrupted. Never raises: without it, older weights are in service."""
        if self.folder is not None:
            try:
                promotion.recover(self.folder)
            except (PolicyError, OSError):
                return
