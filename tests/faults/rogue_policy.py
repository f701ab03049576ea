"""A policy server that answers nonsense: `python rogue_policy.py ADDRESS KIND`. Only generated stubs and grpc."""

from __future__ import annotations

import sys
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from protos.headway.v1 import policy_pb2, policy_pb2_grpc


class Rogue(policy_pb2_grpc.PolicyServicer):
    """Each kind is one way to be wrong."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def Describe(self, request, context):  # noqa: N802 - the name is gRPC's
        if self.kind == "silent-describe":
            time.sleep(60)
        return policy_pb2.PolicyDescription(
            name=self.kind, version="1", source="tests", min_schema_version=1, max_schema_version=1
        )

    def Decide(self, request, context):  # noqa: N802
        answer = policy_pb2.Decision(sequence=request.sequence, placement_offset=[0])
        waiting = [row for row, state in enumerate(request.jobs.state) if state == 1]
        match self.kind:
            case "unknown-job":
                place(answer, 10**6, [(0, 1)])
            case "unknown-node":
                place(answer, waiting[0], [(10**6, request.jobs.num_gpus[waiting[0]])])
            case "overcommitted":
                for row in waiting:
                    place(answer, row, [(0, 99)])
            case "half-a-gang":
                place(answer, waiting[0], [(0, max(request.jobs.num_gpus[waiting[0]] // 2, 1))])
            case "wrong-sequence":
                answer.sequence += 7
            case "nan":
                answer.reason_job.append(0)
                answer.reason.append("\x00nan")
                answer.placement_offset[:] = [4294967295, 0]
            case "slow":
                time.sleep(30)
            case "raises":
                raise RuntimeError("no idea")
        return answer

    def Learn(self, requests, context):  # noqa: N802
        return policy_pb2.LearnSummary(received=sum(1 for _ in requests))


def place(answer, row, shares):
    """Give a job those (node, GPUs)."""
    answer.job.append(row)
    for node, gpus in shares:
        answer.placement_node.append(node)
        answer.placement_gpus.append(gpus)
    answer.placement_offset.append(len(answer.placement_node))


def junk_handler():
    """Ten megabytes that are no message, in place of a decision."""

    def describe(request, context):
        return policy_pb2.PolicyDescription(
            name="junk", version="1", source="tests", min_schema_version=1, max_schema_version=1
        ).SerializeToString()

    def decide(request, context):
        return b"\xff" * (10 << 20)

    return grpc.method_handlers_generic_handler(
        "headway.v1.Policy",
        {
            "Describe": grpc.unary_unary_rpc_method_handler(describe),
            "Decide": grpc.unary_unary_rpc_method_handler(decide),
        },
    )


def main() -> None:
    address, kind = sys.argv[1:]
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    if kind == "junk":
        server.add_generic_rpc_handlers((junk_handler(),))
    else:
        policy_pb2_grpc.add_PolicyServicer_to_server(Rogue(kind), server)
    checks = health.HealthServicer()
    checks.set("headway.v1.Policy", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
