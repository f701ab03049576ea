"""Models for the jobs of a trace that names none, drawn from a mix.

Logs of real clusters rarely say what a job trains. The mixes are those of contention RL (`contention_rl.MIXES`): shares of the six
models of its table I, from GraphSage, which sends little, to MoE, which communicates for most of a step. Which mix a real cluster
has is not known; `normal` gives all six equal shares.

A job's model depends on its id, the mix and the seed alone, so that it is the same in every part of a trace, at every load.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate

from policies.state.pair_ratios import key_of
from simulator.errors import SettingError
from simulator.traces.generators.contention_rl import MIXES, MODELS
from simulator.traces.trace import Trace


def with_models(trace: Trace, mix: str, seed: int, known: Collection[str] = MODELS) -> Trace:
    """Return the trace with a model for every job; jobs that name one keep it.

    `known` are the models that have profiles. Raises SettingError for an unknown mix, and where a model of the mix has no profile:
    all models without one are alike.
    """
    if mix not in MIXES:
        raise SettingError(f"--models {mix!r}: give one of {', '.join(MIXES)}")
    keys = {key_of(model) for model in known}
    missing = [model for model, share in zip(MODELS, MIXES[mix], strict=True) if share and key_of(model) not in keys]
    if missing:
        raise SettingError(f"--models {mix!r}: the file of --profiles has no profile of {', '.join(missing)}; add them")
    bounds = list(accumulate(MIXES[mix]))

    def drawn(job: str) -> str:
        digest = blake2b(f"{seed}:{job}".encode(), digest_size=8).digest()
        return MODELS[bisect_right(bounds, int.from_bytes(digest) / 2**64 * bounds[-1])]

    named = tuple(model or drawn(job) for job, model in zip(trace.job_ids, trace.model, strict=True))
    return replace(trace, model=named)
