"""Decisions at the beginning of rounds alone, as the paper's scheduler makes them (section IV, algorithm 1; section V).

Policies decide at events: when a job ends, its GPUs are given to others at once. In the paper every scheduler, learned or not,
waits for the next round. The paper does not give T; its code has 300 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from policies.api import Decision, Policy, load_policy, option_names, parse_policy
from policies.learned.training.agents import Agent
from policies.model import ClusterState
from policies.selection import present_placements
from simulator.agents.episodes import make, play
from simulator.reproducing.experiment import Contender, Kind, Run, Sampler, Setting, run_of, scheduled
from simulator.runs.progress import OnProgress

ROUND_S = 300.0
_ENV = "headway/Contention-v0"


class InRounds:
    """Lets a policy decide at multiples of ROUND_S; at all other instants running jobs go on and none starts."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spec = replace(policy.spec, round_s=ROUND_S)

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision at the beginning of a round."""
        if state.time_s % ROUND_S:
            return Decision(present_placements(state, state.running))
        return self._policy.decide(state)


def in_rounds(text: str, kind: Kind, sampler: Sampler | None = None) -> Contender:
    """Return the policy NAME[:key=value,...], without its guard, as a contender that decides in rounds."""
    return scheduled(text, kind, lambda: InRounds(load_policy(*parse_policy(unguarded(text)))), sampler)


def unguarded(text: str) -> str:
    """Return the policy NAME[:key=value,...] without its guard, if it has one: the paper's agents decide alone."""
    name, _, options = text.partition(":")
    return ":".join((name, ",".join(filter(None, (options, "guard=false"))))) if "guard" in option_names(name) else text


def acting(name: str, kind: Kind, agent: Callable[[], Agent], branch: str) -> Contender:
    """Return a contender that acts in the agent's own environment, in rounds, with the actions of the paper's agent."""

    def run(setting: Setting, seed: int, _report: OnProgress | None) -> Run:
        env = make(
            _ENV,
            traces=(setting.trace(seed),),
            cluster=setting.cluster,
            slowdown=setting.slowdown,
            profiles=setting.profiles,
            branch=branch,
            round_s=ROUND_S,
            skip_forced=True,
        )
        try:
            play(env, agent(), seed)
            return run_of(env.unwrapped.simulation, f"{name} in {setting.name}, seed {seed}", None)  # type: ignore[attr-defined] # an environment of jobs has one
        finally:
            env.close()

    return Contender(name, kind, run)
