"""The simulator's slowdown models for the described cluster."""

from __future__ import annotations

from controller.base.errors import ConfigurationError
from controller.slurm.embedded.description import ClusterDescription, NodeDescription, expand_hosts
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.errors import ClusterError, SlowdownError
from simulator.slowdown.api import SlowdownModel


def slowdown_models(description: ClusterDescription) -> list[SlowdownModel]:
    """Return new models; they number the nodes that have GPUs, in order. Raises ConfigurationError that names key and mend."""
    if not any(_has_gpus(kind) for kind in description.nodes):
        if description.slowdown:
            raise ConfigurationError("slowdown: no node has GPUs; remove this key, or give a node GPUs")
        return []
    try:
        cluster = _cluster(description)
    except ClusterError as error:
        raise ConfigurationError(str(error)) from error
    if not description.slowdown:
        return []
    from simulator.slowdown.profiles.files import load_profiles
    from simulator.slowdown.profiles.papers import paper_profiles
    from simulator.slowdown.registry import build

    try:
        profiles = load_profiles(description.profiles) if description.profiles else paper_profiles()
    except SlowdownError as error:
        raise ConfigurationError(f"profiles: {error}") from error
    try:
        return build(description.slowdown, topology=cluster.topology, profiles=profiles)
    except SlowdownError as error:
        raise ConfigurationError(f"slowdown: {error}") from error


def _cluster(description: ClusterDescription) -> Cluster:
    """Return the nodes with GPUs and their network as the simulator's cluster."""
    return cluster_of(
        {
            "nodes": [_block(kind) for kind in description.nodes if _has_gpus(kind)],
            "network": description.network,
        }
    )


def _has_gpus(kind: NodeDescription) -> bool:
    return bool(kind.gpus and expand_hosts(kind.names))


def _block(kind: NodeDescription) -> dict[str, object]:
    block: dict[str, object] = {"names": kind.names, "gpus": kind.gpus, "speed": kind.speed, "rack": kind.rack}
    inside = {"sockets": kind.sockets, "switches": kind.switches, "nvlink": kind.nvlink}
    return block | {key: value for key, value in inside.items() if value is not None}
