"""The scenario of a run: trace, cluster and settings, from the options of the command line."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policies.api import Policy, load_policy, option_names, parse_policy
from policies.rule import Layout, rule_of
from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.engine.job_sizes import JobSizes
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError, TraceError
from simulator.runs.options import PLACEMENTS, RunOptions
from simulator.slowdown.api import SlowdownModel
from simulator.traces.read import read_trace
from simulator.traces.trace import NS_PER_S, Trace

if TYPE_CHECKING:
    from policies.serving.remote import RemotePolicy
    from simulator.slowdown.profiles.model_profiles import ModelProfiles


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything that the runs of several policies share. Invariant: all of them run the jobs of `trace`, with equal draws."""

    options: RunOptions
    trace: Trace
    """The jobs that are run: with --drop-impossible, those that the empty cluster can hold by every rule of placement."""
    cluster: Cluster
    settings: Settings
    read_s: float
    """Seconds that reading the trace took."""
    dropped: int = 0
    """Number of jobs of the trace that --drop-impossible left out."""
    begin_ns: int = 0
    """First submission on the clock of the trace's file (ns). A run begins then, at 0; its files have that clock again."""

    @classmethod
    def of(cls, options: RunOptions, *, record: bool) -> Scenario:
        """Read trace and cluster as the options say. Raises SimulatorError."""
        cluster = parse_cluster(options.cluster)
        models_of(options.slowdown, options, cluster)
        begin = time.perf_counter()
        trace = _with_models(read_trace(options.trace, options.limit), options)
        read_s = time.perf_counter() - begin
        begin_ns = int(trace.submit_ns[0]) if len(trace) else 0
        return cls._with(options, trace.from_zero(), cluster, record, read_s, begin_ns)

    @classmethod
    def on(cls, options: RunOptions, trace: Trace, cluster: Cluster) -> Scenario:
        """Return the scenario of a trace that has been read, on that cluster; the options say the rest. Raises SimulatorError.

        Times of submission stay as they are: `Trace.from_zero` is the caller's.
        """
        models_of(options.slowdown, options, cluster)
        return cls._with(options, _with_models(trace, options), cluster, record=False)

    @classmethod
    def _with(
        cls,
        options: RunOptions,
        trace: Trace,
        cluster: Cluster,
        record: bool,
        read_s: float = 0.0,
        begin_ns: int = 0,
    ) -> Scenario:
        # Models and failures are drawn for the whole trace, so that they do not depend on which jobs are dropped.
        settings = _settings(options, cluster, trace, record, begin_ns / NS_PER_S)
        kept = _kept(trace, cluster) if options.drop_impossible else trace
        return cls(options, kept, cluster, settings, read_s, len(trace) - len(kept), begin_ns)

    def simulation(self, policy: Policy) -> Simulation:
        """Return a simulation of that policy that has not begun. Raises SimulatorError."""
        if not self.options.drop_impossible:
            self._refuse_impossible(policy)
        models = self.models(policy)
        # A policy that is defined by its rule sees no state, and so no profiles.
        profiles = _profiles(self.options.profiles) if rule_of(policy) is None else None
        return Simulation(self.trace, self.cluster, policy, self.settings, models, profiles)

    def under_rule(self, rule: str, policy: Policy) -> Simulation:
        """Return a simulation of the rule that has not begun, whose copies may go on under `policy`.

        Every job must fit on the cluster. Raises SimulatorError, PolicyError.
        """
        made, models = make_policy(rule, self.options, lenient=True), self.models(policy)
        return Simulation(self.trace, self.cluster, made, self.settings, models, _profiles(self.options.profiles))

    def models(self, policy: Policy) -> list[SlowdownModel]:
        """Return new slowdown models for a run of that policy. Raises SimulatorError."""
        return models_of(self.slowdown(policy), self.options, self.cluster)

    def slowdown(self, policy: Policy) -> tuple[str, ...]:
        """Return the slowdown models of a run of that policy: the given ones, and those that cluster and policy need beside them.

        These are `node-speed` if nodes differ in speed, and `scaling` if jobs are resized.

        Raises SettingError if jobs are resized and --slowdown none excludes a model of their speed.
        """
        from simulator.slowdown.registry import model_of, with_node_speed

        asked = with_node_speed(self.options.slowdown, self.cluster.topology)
        if not (policy.spec.resizes and self.trace.elastic) or "scaling" in map(model_of, asked):
            return asked
        if asked == ("none",):
            raise SettingError(
                f"policy {policy.spec.name} resizes elastic jobs, and --slowdown none has no model of their speed at other sizes; "
                "give --slowdown scaling, or leave --slowdown out"
            )
        return (*asked, "scaling")

    def assumptions(self, name: str, policy: Policy) -> dict[str, object]:
        """Return the assumptions of a run of that policy, as values that JSON has."""
        options, settings = self.options, self.settings
        rule = rule_of(policy)
        return {
            "policy": name,
            "policy_source": policy.spec.source,
            "trace": str(options.trace),
            "trace_rows": len(self.trace) + self.dropped,
            "limit": options.limit,
            "cluster": options.cluster,
            "nodes": self.cluster.num_nodes,
            "gpus": self.cluster.num_gpus,
            "network": self.cluster.topology.kind,
            "placement": "the policy's own" if rule is None else _PLACEMENT_OF[rule.layout],
            "round_s": policy.spec.round_s,
            "slowdown": list(self.slowdown(policy)),
            "models": options.models or "as named; others have the median of all profiles",
            "profiles": str(options.profiles) if options.profiles else "built in",
            "preempt_cost_s": "by model" if settings.preempt_cost_s is None else settings.preempt_cost_s,
            "preemptible_share": settings.preemptible_share,
            "checkpoint_interval_s": options.checkpoint_interval_s,
            "estimates": options.estimates,
            "failures": options.failures,
            "node_changes": len(settings.changes),
            "seed": settings.seed,
            **({} if (remote := as_remote(policy)) is None else {"fallback_decisions": remote.fallback_decisions}),
        }

    def _refuse_impossible(self, policy: Policy) -> None:
        """Raise TraceError if the policy can never place some job on the cluster."""
        rule = rule_of(policy)
        layout = Layout.ANYWHERE if rule is None else rule.layout
        fits = JobSizes(self.trace, self.cluster).possible(layout)
        impossible = len(self.trace) - int(fits.sum())
        if not impossible:
            return
        row = int(np.flatnonzero(~fits)[0])
        total, nodes = self.cluster.num_gpus, self.cluster.num_nodes
        raise TraceError(
            f"is more than the cluster ({total} GPUs on {nodes} nodes) can ever give job {self.trace.job_ids[row]}",
            mend=f"take a larger cluster, or leave such jobs ({impossible}) out with --drop-impossible",
            path=self.options.trace,
            line=int(self.trace.file_rows[row]) + 2,
            column="num_gpus",
            text=str(self.trace.num_gpus[row]),
        )


def report_unread(slowdown: tuple[str, ...], name: str, cluster: Cluster) -> None:
    """Write a line to standard error if the cluster of that name has links inside nodes that no slowdown model reads."""
    from simulator.slowdown.registry import unread_keys

    if keys := unread_keys(slowdown, cluster.topology):
        sys.stderr.write(
            f"headway-sim: {', '.join(keys)} of {name} slow no job down; add --slowdown gpu-links to have them count\n"
        )


def _kept(trace: Trace, cluster: Cluster) -> Trace:
    """Return the jobs that fit on the empty cluster by every rule of placement: the same ones for all policies."""
    fits = JobSizes(trace, cluster).always_possible()
    return trace if fits.all() else trace.take(fits)


_PLACEMENT_OF = {Layout.CONSOLIDATED: "consolidated", Layout.ANYWHERE: "any"}


def make_policy(text: str, options: RunOptions, *, lenient: bool = False) -> Policy:
    """Load NAME[:key=value,...] with the values of --placement, --round and --seed. Raises PolicyError, SettingError.

    grpc://HOST:PORT or unix:///PATH is the policy of a server, which has its options already; the caller closes it.

    --round is ignored by a policy that decides at events only, --placement by one whose rule fixes placement (srtf-count). Any
    other policy that does not take --placement is an error, except with `lenient`, for policies that share options.
    """
    if _is_address(text):
        return _remote_policy(text, options, lenient)
    name, own = parse_policy(text)
    given: dict[str, tuple[str, object]] = {}
    if options.placement is not None:
        given["layout"] = (f"--placement {options.placement}", PLACEMENTS[options.placement])
    if options.round_s is not None:
        given["round_s"] = (f"--round {options.round_s:g}", options.round_s)
    taken = option_names(name) if given or options.seed is not None else frozenset()
    if options.seed is not None and "seed" in taken:
        own.setdefault("seed", options.seed)
    for key, (flag, value) in given.items():
        if key in own:
            raise SettingError(f"{flag} and {key} of --policy {text} set the same option; leave one out")
        if key in taken:
            own[key] = value
        elif key == "layout" and not lenient and rule_of(load_policy(name, own)) is None:
            raise SettingError(f"policy {name} takes no {flag.split()[0]}; leave it out, or take another policy")
    return load_policy(name, own)


@contextmanager
def opened_policy(text: str, options: RunOptions, *, lenient: bool = False) -> Iterator[Policy]:
    """Make a policy as `make_policy` does; at the end, close its connection if it has one."""
    policy = make_policy(text, options, lenient=lenient)
    try:
        yield policy
    finally:
        if (remote := as_remote(policy)) is not None:
            remote.close()


def as_remote(policy: Policy) -> RemotePolicy | None:
    """Return the policy if a server makes its decisions, or None."""
    if "policies.serving.remote" not in sys.modules:
        return None  # gRPC takes longer to import than a small run
    from policies.serving.remote import RemotePolicy

    return policy if isinstance(policy, RemotePolicy) else None


def fallback_figures(policy: Policy) -> dict[str, int]:
    """Return `fallback_decisions`, the number of decisions that a server did not make; empty for a policy without a fallback."""
    remote = as_remote(policy)
    return {"fallback_decisions": remote.fallback_decisions} if remote is not None and remote.has_fallback else {}


def fallback_note(policy: Policy) -> str:
    """Return a line about the decisions that a server did not make; empty if there are none."""
    remote = as_remote(policy)
    if remote is None or not remote.fallback_decisions:
        return ""
    return f"{remote.fallback_decisions:,} of {remote.decisions:,} decisions were the fallback's; the first: {remote.first_problem}"


def _is_address(text: str) -> bool:
    """Return whether this is meant as an address, and not as the name of an installed policy; `RemotePolicy.parse` checks its form.

    It stands here because gRPC takes longer to import than a small run."""
    return "://" in text or text.startswith("unix:") or text.rpartition(":")[2].isdigit()


def _remote_policy(text: str, options: RunOptions, lenient: bool) -> Policy:
    from policies.serving.remote import RemotePolicy

    given = {"--placement": options.placement, "--round": options.round_s}
    for flag, value in given.items():
        if value is not None and not lenient:
            raise SettingError(f"the policy at {text} has its options already; leave {flag} out")
    return RemotePolicy.parse(text)


def takes(text: str, key: str) -> bool:
    """Return whether the policy of NAME[:key=value,...] has that option. Raises PolicyLoadError."""
    return not _is_address(text) and key in option_names(parse_policy(text)[0])


def models_of(names: tuple[str, ...], options: RunOptions, cluster: Cluster) -> list[SlowdownModel]:
    """Return new slowdown models of these names, with --profiles. Raises SimulatorError."""
    if names == ("none",):
        return []
    from simulator.slowdown.registry import build

    return build(names, topology=cluster.topology, profiles=_profiles(options.profiles))


def _with_models(trace: Trace, options: RunOptions) -> Trace:
    if options.models is None:
        return trace
    from simulator.traces.generators.drawn_models import with_models

    return with_models(trace, options.models, options.seed or 0, _profiles(options.profiles).models)


def _profiles(path: Path | None) -> ModelProfiles:
    if path is None:
        from simulator.slowdown.profiles.papers import paper_profiles

        return paper_profiles()
    from simulator.slowdown.profiles.files import load_profiles

    return load_profiles(path)


def _settings(options: RunOptions, cluster: Cluster, trace: Trace, record: bool, begin_s: float) -> Settings:
    from simulator.engine.failures import failures_from

    seed = options.seed or 0
    changes = failures_from(options.failures, cluster, trace, seed, begin_s) if options.failures else ()
    every = options.checkpoint_interval_s
    return Settings(
        seed=seed,
        estimates=Estimates.parse(options.estimates),
        preempt_cost_s=options.preempt_cost_s,
        preemptible_share=options.preemptible_share,
        checkpoint_interval_s=math.inf if every is None else every,
        changes=changes,
        record=record,
    )
