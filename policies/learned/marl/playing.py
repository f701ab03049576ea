"""Episodes of the environment of MARL, several side by side (section IV-C).

The environment is `headway/Marl-v0` with agent=None: all schedulers act in turn. A scheduler's vector is made anew when its
observation has changed; in most decisions, only the acting scheduler's has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.distribution import Categorical
from policies.learned.marl.network import MarlNetwork

Array = npt.NDArray[Any]
END = -1
_REWARDS = "action_rewards"


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions, a row for each. Invariant: `following[i]` is a later row of the same scheduler and episode, or END."""

    own: dict[str, Array]
    """Observation of the acting scheduler."""
    acting: Array
    """The acting scheduler."""
    vectors: Array
    """Vectors that all schedulers sent (rows, S, encoded); the acting scheduler's own may be an old one."""
    inter: Array
    masks: Array
    actions: Array
    values: Array
    """The critic's value when the decision was made."""
    rewards: Array
    following: Array
    """Row of the same scheduler's next decision; END behind its last one."""
    advice: Array
    """The rule's scores of all actions, where it was asked; else no columns."""

    def __len__(self) -> int:
        return len(self.actions)

    def rows(self, rows: Array) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the network's inputs of these rows, as `MarlNetwork.decide` takes them."""
        own = {name: torch.from_numpy(cells[rows]) for name, cells in self.own.items()}
        acting, vectors, inter = (torch.from_numpy(each[rows]) for each in (self.acting, self.vectors, self.inter))
        return own, acting, vectors, inter


def joined(parts: Sequence[Decisions]) -> Decisions:
    """Return the decisions of several, one after the other."""
    first = np.cumsum([0, *(len(part) for part in parts)])
    columns: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Decisions)
        if field.name not in {"own", "following"}
    }
    own = {name: np.concatenate([part.own[name] for part in parts]) for name in parts[0].own}
    shifted = [
        np.where(part.following == END, END, part.following + at) for part, at in zip(parts, first, strict=False)
    ]
    return Decisions(own=own, following=np.concatenate(shifted), **columns)


class Messages:
    """The vectors that schedulers of several environments sent. Invariant: `vectors[e, s]` is of the observation in `_seen`.

    Bound: the parts of an observation.
    """

    def __init__(self, network: MarlNetwork, envs: int) -> None:
        self._network = network
        self._envs = envs
        self._seen: dict[str, Array] = {}
        self.vectors: torch.Tensor

    def update(self, seen: Mapping[str, Array], acting: Array) -> torch.Tensor:
        """Return the vectors (envs, S, encoded) after these observations; those of the acting schedulers stay as they are."""
        layout = self._network.layout
        shape = (self._envs, layout.schedulers)
        changed = np.ones(shape, dtype=np.bool_)
        if self._seen:
            changed[:] = False
            for name in layout.shapes:
                changed |= (seen[name] != self._seen[name]).reshape(*shape, -1).any(2)
            changed[np.arange(self._envs), acting] = False
        else:
            self._seen = {name: seen[name].copy() for name in layout.shapes}
        env, scheduler = np.nonzero(changed)
        if len(env):
            for name, cells in self._seen.items():
                cells[env, scheduler] = seen[name][env, scheduler]
            with torch.inference_mode():
                own = {name: torch.from_numpy(seen[name][env, scheduler]) for name in layout.shapes}
                found = self._network.encode(own, torch.from_numpy(scheduler))
            if not hasattr(self, "vectors"):
                self.vectors = found.new_zeros(*shape, found.shape[1])
            self.vectors[torch.from_numpy(env), torch.from_numpy(scheduler)] = found
        return self.vectors


class Player:
    """Plays one episode in each of several environments. Invariant: the network, and the seeds, determine all decisions."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], network: MarlNetwork, *, with_advice: bool = False
    ) -> None:
        """With advice, the environments' rule is asked about every decision, and `by_rule` of `play` can follow it."""
        self._envs: Any = envs
        self._network = network
        self._with_advice = with_advice

    def play(self, seeds: Sequence[int], draws: torch.Generator, by_rule: Array | None = None) -> Decisions:
        """Play an episode of each seed with drawn actions; in the environments of `by_rule` (bool), the rule acts."""
        envs, count = self._envs, self._envs.num_envs
        seen, _ = envs.reset(seed=list(seeds))
        messages = Messages(self._network, count)
        goes_on = np.ones(count, dtype=np.bool_)
        episodes = [_Episode() for _ in range(count)]
        while goes_on.any():
            acting = seen["scheduler"].argmax(1)
            vectors = messages.update(seen, acting).numpy().copy()
            own = {name: seen[name][np.arange(count), acting] for name in self._network.layout.shapes}
            masks = envs.action_masks()
            actions, values = self._chosen(own, acting, vectors, seen["inter"], masks, draws)
            advice = np.stack(envs.call("advice")) if self._with_advice else np.zeros((count, 0))
            if by_rule is not None:
                actions = np.where(by_rule, advice.argmin(1), actions)
            columns = {"acting": acting, "vectors": vectors, "inter": seen["inter"], "masks": masks, "actions": actions}
            columns |= {"values": values, "advice": advice}
            for env in np.flatnonzero(goes_on).tolist():
                episodes[env].add(own, columns, env)
            seen, _, terminated, truncated, infos = envs.step(actions)
            over = terminated | truncated
            _add_rewards(episodes, infos, goes_on, over)
            goes_on &= ~over
        return joined([episode.decisions() for episode in episodes])

    def _chosen(
        self, own: dict[str, Array], acting: Array, vectors: Array, inter: Array, masks: Array, draws: torch.Generator
    ) -> tuple[Array, Array]:
        with torch.inference_mode():
            seen = {name: torch.from_numpy(cells) for name, cells in own.items()}
            logits, values = self._network.decide(seen, *map(torch.from_numpy, (acting, vectors, inter)))
            return Categorical(logits, torch.from_numpy(masks)).sample(draws).numpy(), values.numpy()


class _Episode:
    """The decisions of one episode so far. Bound: the decisions of one episode."""

    def __init__(self) -> None:
        self._own: dict[str, list[Array]] = {}
        self._columns: dict[str, list[Any]] = {}
        self.rewards: list[float] = []

    def add(self, own: Mapping[str, Array], columns: Mapping[str, Array], row: int) -> None:
        for name, cells in own.items():
            self._own.setdefault(name, []).append(cells[row])
        for name, cells in columns.items():
            self._columns.setdefault(name, []).append(cells[row])

    def decisions(self) -> Decisions:
        columns: dict[str, Any] = {name: np.stack(cells) for name, cells in self._columns.items()}
        count = len(columns["acting"])
        rewards = np.zeros(count, dtype=np.float32)
        rewards[: len(self.rewards)] = self.rewards  # an episode that was cut off has fewer
        own = {name: np.stack(cells) for name, cells in self._own.items()}
        return Decisions(own=own, rewards=rewards, following=following(columns["acting"].tolist()), **columns)


def _add_rewards(episodes: Sequence[_Episode], infos: Mapping[str, Any], goes_on: Array, over: Array) -> None:
    """Add the rewards of the decisions since the last interval, where one has ended."""
    final = infos.get("final_info", {})
    for env in np.flatnonzero(goes_on).tolist():
        of = final if over[env] else infos
        if _REWARDS in of and of["_" + _REWARDS][env]:
            episodes[env].rewards.extend(np.asarray(of[_REWARDS][env], dtype=np.float32).tolist())


def following(schedulers: Sequence[int]) -> Array:
    """Return the row of the next decision of the same scheduler for each row; END behind its last one."""
    found = np.full(len(schedulers), END)
    later: dict[int, int] = {}
    for row in range(len(schedulers) - 1, -1, -1):
        found[row] = later.get(schedulers[row], END)
        later[schedulers[row]] = row
    return found
