"""A whole learned policy: in which order to start jobs, found by evolution strategies (Salimans et al., 2017)."""

from dataclasses import dataclass

import numpy as np

from policies.api import Decision, PolicySpec
from policies.learned.training import systems
from policies.learned.training.run import checkpoint, training_run
from policies.learned.weights import weights as files
from policies.model import ClusterState, FloatColumn
from policies.selection import fill

NAME, CARD = "learned-order", systems.CardDetails("learned-order/1", shapes=("any",))


class LearnedOrder:
    """Waiting jobs by a weighted sum of the logarithms of GPUs, run time and wait; untrained: by run time."""

    spec = PolicySpec(NAME, "an example", needs=frozenset({"duration_estimate"}))

    def __init__(self, weights: str = "", by: FloatColumn | None = None) -> None:
        self._by = np.array([0.0, 1.0, 0.0]) if by is None else by
        if weights:
            self._by = files.load(*files.located(weights, NAME, NAME), system=NAME, encoder=CARD.encoder)[0]["by"]

    def decide(self, state: ClusterState) -> Decision:
        """Start, least first, every waiting job that fits when its turn comes."""
        jobs = state.jobs
        seen = np.log([jobs.num_gpus, jobs.duration_estimate_s, state.time_s - jobs.submit_time_s + 1.0])
        return fill(state, state.pending[np.argsort(self._by @ seen[:, state.pending], kind="stable")])


@dataclass(frozen=True)
class Recipe:
    """Fields for --set."""

    rounds: int = 20
    tries: int = 16
    step: float = 0.3


def train(run: training_run.TrainingRun, backend: systems.SimulationBackend, recipe: Recipe) -> None:
    """Try orders around the present one on a trace, and go towards those whose jobs wait less."""
    order = checkpoint.NamedArrays(by=np.zeros(3))
    run.keep(order=order)
    for number in run.rounds(recipe.rounds):
        noise = recipe.step * run.rng("tries").normal(size=(recipe.tries, 3))
        tried = [LearnedOrder(by=order["by"] + each) for each in noise]
        costs = np.array([each.figures[systems.FIGURE] for each in backend.play(tried, [number] * recipe.tries)])
        order["by"] -= (costs - costs.mean()) / (costs.std() + 1e-9) @ noise / recipe.tries
        figures = backend.validate(LearnedOrder(by=order["by"]))
        run.evaluate(figures[systems.FIGURE], order, **figures)


SETUP = systems.TrainingSetup(workloads=(systems.WorkloadSpec("sched2", {"jobs": 60}),), cluster="2x8")
SYSTEM = systems.TrainableSystem(
    name=NAME, summary=NAME, recipe=Recipe, setup=lambda _: SETUP, card=lambda *_: CARD, train=train, policies=(NAME,)
)
