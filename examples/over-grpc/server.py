"""A policy that uses nothing of Headway but its .proto files: jobs in order of submission, each on the first node that it fits.

Usage: server.py ADDRESS, for example 127.0.0.1:50051. docs/architecture.md says how to generate the stubs that it imports.
"""
# ruff: noqa: ARG002, D102, N802 - gRPC gives the methods their names and arguments

import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from protos.headway.v1 import policy_pb2, policy_pb2_grpc


class FirstNode(policy_pb2_grpc.PolicyServicer):
    """Jobs that ask for several nodes, for certain nodes, or for a node of their own are left waiting."""

    def Describe(self, request, context):
        return policy_pb2.PolicyDescription(
            name="first-node", version="1", source="an example", min_schema_version=1, max_schema_version=1
        )

    def Decide(self, snapshot, context):
        jobs, room = snapshot.jobs, Room(snapshot)
        decision = policy_pb2.Decision(sequence=snapshot.sequence, placement_offset=[0])
        for job in range(len(jobs.job_id)):
            begin, end = jobs.placement_offset[job : job + 2]
            nodes, gpus = list(jobs.placement_node[begin:end]), list(jobs.placement_gpus[begin:end])
            if not nodes:  # the job waits
                decision.queue.append(job)
                nodes, gpus = room.first_node(job), [jobs.num_gpus[job]]
            if nodes:  # a decision is the whole allocation, so running jobs keep their placements
                decision.job.append(job)
                decision.placement_node.extend(nodes)
                decision.placement_gpus.extend(gpus)
                decision.placement_offset.append(len(decision.placement_node))
        return decision

    def Learn(self, outcomes, context):
        return policy_pb2.LearnSummary(received=sum(1 for _ in outcomes))


class Room:
    """GPUs, CPUs and memory that running jobs leave free on each node."""

    def __init__(self, snapshot):
        nodes, jobs = snapshot.nodes, snapshot.jobs
        self._jobs = jobs
        self._open = list(nodes.available)
        # 0 CPUs or memory means that they are not known, and set no limit.
        self._gpus = [has - used for has, used in zip(nodes.gpus, nodes.foreign_gpus, strict=True)]
        self._cpus = [(has or 1e9) - used for has, used in zip(nodes.cpus, nodes.foreign_cpus, strict=True)]
        self._memory = [
            (has or 1e9) - used for has, used in zip(nodes.memory_mib, nodes.foreign_memory_mib, strict=True)
        ]
        for job in range(len(jobs.job_id)):
            for entry in range(*jobs.placement_offset[job : job + 2]):
                self._take(job, jobs.placement_node[entry], jobs.placement_gpus[entry])

    def first_node(self, job):
        """Return a list with the first node that the whole job fits on; an empty list when there is none."""
        jobs = self._jobs
        if jobs.min_nodes[job] > 1 or jobs.node_set[job] or jobs.exclusive[job]:
            return []
        gpus = jobs.num_gpus[job]
        for node, is_open in enumerate(self._open):
            if (
                is_open
                and self._gpus[node] >= gpus
                and self._cpus[node] >= gpus * jobs.cpus_per_gpu[job]
                and self._memory[node] >= gpus * jobs.memory_mib_per_gpu[job]
            ):
                self._take(job, node, gpus)
                return [node]
        return []

    def _take(self, job, node, gpus):
        self._gpus[node] -= gpus
        self._cpus[node] -= gpus * self._jobs.cpus_per_gpu[job]
        self._memory[node] -= gpus * self._jobs.memory_mib_per_gpu[job]
        self._open[node] = self._open[node] and not self._jobs.exclusive[job]


def main(address):
    """Serve until killed."""
    # gRPC's default of 4 MiB is too small for the snapshots of long queues.
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 64 << 20)])
    policy_pb2_grpc.add_PolicyServicer_to_server(FirstNode(), server)
    serving = health.HealthServicer()  # the controller checks it before it changes to this server
    serving.set("headway.v1.Policy", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(serving, server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
