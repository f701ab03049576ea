"""An encoder beside the environment whose observations it must show: one episode, decision by decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.model import Placement


def follow(
    env: Any, encoder: Any, agent: Callable[[Any], int], check_parity: Callable[[Any, Any, Any], None], **reset: Any
) -> int:
    """Play an episode by that agent, and return how many jobs were started, each where the encoder puts it."""
    started = 0
    seen, _ = env.reset(**reset)
    view, over = encoder.observe(env.simulation.state()), False
    while not over:
        check_parity(env, encoder.observe(env.simulation.state()), seen)
        check_parity(env, view, seen)
        action, state, now = agent(env), view.state, env.loop.now
        found = view.start(action)
        seen, _, terminated, truncated, _ = env.step(np.int64(action))
        over = terminated or truncated
        assert (found is None) == (action == 0)
        if found is not None:
            started += 1
            row, placement = found
            where = {job.index: (job.nodes, job.counts) for job in env.loop.running}
            index = env.trace.job_ids.index(state.jobs.ids[row])
            assert env.loop.now > now or Placement.of(zip(*where[index], strict=True)) == placement
        if env.loop.now != now and not over:
            view = encoder.observe(env.simulation.state())
    assert terminated
    return started
