"""A policy of another project, which uses nothing of Headway except its .proto files.

Usage: server.py FOLDER_OF_PROTOS ADDRESS. It generates its own stubs from the .proto files in that folder, then serves a policy
that starts the newest waiting jobs first, each on the first node with enough free GPUs.
"""

import sys
import tempfile
from concurrent import futures
from pathlib import Path


def make_stubs(proto_folder: Path) -> None:
    """Generate stubs into a new folder, and make it importable."""
    from grpc_tools import protoc

    target = tempfile.mkdtemp(prefix="foreign-policy-")
    sources = [str(path) for path in sorted(proto_folder.rglob("*.proto"))]
    arguments = ["protoc", f"-I{proto_folder}", f"--python_out={target}", f"--grpc_python_out={target}", *sources]
    if protoc.main(arguments) != 0:
        raise SystemExit("the .proto files do not compile")
    for folder in [path for path in Path(target).rglob("*") if path.is_dir()]:
        (folder / "__init__.py").touch()
    sys.path.insert(0, target)


def free_gpus(snapshot):
    """Return the free GPUs of each node."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    free = [gpus - foreign for gpus, foreign in zip(nodes.gpus, nodes.foreign_gpus, strict=True)]
    for node, gpus in zip(jobs.placement_node, jobs.placement_gpus, strict=True):
        free[node] -= gpus
    return free


def add(decision, job, placement):
    """Add a job and its placement to the decision."""
    decision.job.append(job)
    for node, gpus in placement:
        decision.placement_node.append(node)
        decision.placement_gpus.append(gpus)
    decision.placement_offset.append(len(decision.placement_node))


def newest_first():
    """Return a servicer that starts the newest waiting jobs first. The stubs exist only after make_stubs."""
    from protos.headway.v1 import policy_pb2, policy_pb2_grpc, snapshot_pb2

    class NewestFirst(policy_pb2_grpc.PolicyServicer):
        def Describe(self, request, context):  # noqa: N802
            return policy_pb2.PolicyDescription(
                name="newest-first", version="3", source="somebody else", min_schema_version=1, max_schema_version=1
            )

        def Decide(self, request, context):  # noqa: N802
            jobs, nodes = request.jobs, request.nodes
            free = free_gpus(request)
            decision = policy_pb2.Decision(sequence=request.sequence, placement_offset=[0])
            for job, state in enumerate(jobs.state):
                if state == snapshot_pb2.JOB_STATE_RUNNING:
                    begin, end = jobs.placement_offset[job : job + 2]
                    add(decision, job, zip(jobs.placement_node[begin:end], jobs.placement_gpus[begin:end], strict=True))
            for job in reversed(range(len(jobs.job_id))):
                if jobs.state[job] != snapshot_pb2.JOB_STATE_PENDING:
                    continue
                decision.queue.append(job)
                for node, gpus in enumerate(free):
                    if nodes.available[node] and gpus >= jobs.num_gpus[job]:
                        free[node] -= jobs.num_gpus[job]
                        add(decision, job, [(node, jobs.num_gpus[job])])
                        decision.reason_job.append(job)
                        decision.reason.append(f"newest, and {nodes.name[node]} has room")
                        break
            return decision

        def Learn(self, request_iterator, context):  # noqa: N802
            return policy_pb2.LearnSummary(received=sum(1 for _ in request_iterator))

    return NewestFirst()


def serve(address: str) -> None:
    """Serve until killed."""
    import grpc

    from protos.headway.v1 import policy_pb2, policy_pb2_grpc

    server = grpc.server(futures.ThreadPoolExecutor(2))
    policy_pb2_grpc.add_PolicyServicer_to_server(newest_first(), server)
    server.add_insecure_port(address)
    server.start()
    print("serving stubs from", policy_pb2.__file__, flush=True)
    print("imported", *sorted({name.partition(".")[0] for name in sys.modules}), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    make_stubs(Path(sys.argv[1]))
    serve(sys.argv[2])
