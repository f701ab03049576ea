"""Agents on the nodes of jobs: their connections, their reports, and the commands that they have not answered yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from controller.agents.commands import AgentCommands, CommandSender
from controller.agents.node_table import NodeStatus
from controller.preempt.reports.job_reports import NodeReport, ReportTable, newest_step
from controller.preempt.reports.silent_nodes import silent_nodes
from controller.profiles.windows import RunKey
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import SlurmJob
from controller.state.preemption import Preemption


class Agents(CommandSender, Protocol):
    """The server of agents, which sends commands and has the state of each node's agent."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node whose agent was connected recently."""


class JobAgents:
    """Invariant: only reports from a job's own nodes count for it, so that no other node affects its preemption."""

    def __init__(self) -> None:
        self.reports = ReportTable()
        self.commands: AgentCommands | None = None
        """Commands under way; None while no agents are served."""
        self._agents: Agents | None = None

    def serve(self, agents: Agents | None) -> None:
        """Use this server of agents from now on; None: no agents are served."""
        self._agents = agents
        self.commands = None if agents is None else AgentCommands(agents)

    def of_run(self, job: SlurmJob) -> Mapping[str, NodeReport]:
        """Return the newest reports of the job's present run, by node."""
        known = {} if job.raw_id is None else self.reports.of(RunKey(job.raw_id, job.restarts))
        nodes = {share.node for share in job.allocated} if known else set()
        return {node: report for node, report in known.items() if node in nodes}

    def newest_step(self, row: Preemption) -> int | None:
        """Return the steps done at the newest checkpoint of the run that is to be stopped; None: not known."""
        known = self.reports.of(RunKey(row.raw_id, row.restarts))
        return newest_step({node: report for node, report in known.items() if node in row.nodes})

    def connected(self, job: SlurmJob) -> set[str]:
        """Return the nodes of the job whose agents are connected."""
        nodes = {} if self._agents is None else self._agents.nodes
        found = ((share.node, nodes.get(share.node)) for share in job.allocated)
        return {node for node, status in found if status is not None and status.connected}

    def silent(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        """Return the nodes whose agents are not connected; none when no agent at all is connected."""
        known = {} if self._agents is None else self._agents.nodes
        connected = {node for node, status in known.items() if status.connected}
        return silent_nodes((node.name for node in snapshot.nodes), connected) if connected else frozenset()
