"""Real ranks over gloo on emulated nodes, most of them in a 2 x 2 mesh: what a group within a node sends is reported apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.wire.frames import Collective, Profile
from tests.unit.headway_job.agent import FAST_POLLS, SENT, SOCKETS, Agent, Program, profiling_agent

_TORCHRUN = """
os.environ.update(
    RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2", GROUP_RANK=str(rank // 2)
)
"""
_SLURM_BLOCK = """
os.environ.update(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="4", SLURM_GTIDS="0,1" if rank < 2 else "2,3")
"""
_SLURM_CYCLIC = """
os.environ.update(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="4", SLURM_GTIDS="1,3" if rank % 2 else "0,2")
"""
_ONE_NODE = """
os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="4", GROUP_RANK="0")
"""
_PYTHON_ONLY = "from headway_job.profiling import gloo_trace\ngloo_trace.dump = lambda: None\n"
"""torch lists no collectives: versions without a flight recorder for gloo, and other backends."""
_PROGRAM = (
    FAST_POLLS.replace("0.002", "0.02")
    + SENT
    + SOCKETS
    + """
import os, sys, time, warnings
import eager_torch, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
warnings.simplefilter("ignore")  # older names are deprecated
rank = int(sys.argv[1])
{environment}
dist.init_process_group("gloo", init_method=f"file://{{os.getcwd()}}/store", rank=rank, world_size=4)
rows, columns = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
tensor_parallel = [dist.new_group(ranks) for ranks in rows][rank // 2]
data_parallel = [dist.new_group(ranks) for ranks in columns][rank % 2]
model = torch.nn.Linear(100, 10)
ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=data_parallel)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
data = torch.ones(500)
for number in range(120):
    optimizer.zero_grad()
    ddp(torch.ones(2, 100)).sum().backward()
    functional.all_gather_tensor(data, 0, tensor_parallel).sum()
    functional.all_gather_tensor(data, 0, data_parallel).sum()
    dist.all_reduce(data, group=tensor_parallel)
    dist.broadcast(data, 0)
    dist.all_to_all_single(torch.empty(500), data, group=data_parallel)
    data.fill_(1.0)
    optimizer.step()
    time.sleep(0.02)
    if number == 12: wait_until(lambda: "profile" in sent or client().window is not None)
wait_until(lambda: "profile" in sent)
dist.barrier()
print("ended")
sys.stdout.flush()
os._exit(0)
"""
)
_GRADIENTS = (100 * 10 + 10) * 4
_SMALL = 500 * 4


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Agent:
    return profiling_agent(tmp_path, request, steps=5)


def profiles(agent: Agent, forked: Program, environment: str) -> list[Profile]:
    done = forked.run_ranks(_PROGRAM.format(environment=environment), 4)
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [(0, "ended\n", "")] * 4
    agent.close()
    return [connection.profile for connection in agent.connections]


def uses(profile: Profile) -> dict[str, Collective]:
    return {use.kind: use for use in profile.kinds}


@pytest.mark.parametrize(
    "environment", [pytest.param(_TORCHRUN, marks=pytest.mark.slow), _SLURM_BLOCK], ids=["torchrun", "slurm"]
)
def test_tensor_parallel_groups_within_a_node_load_no_link(agent: Agent, forked: Program, environment: str) -> None:
    for profile in profiles(agent, forked, environment):
        found = uses(profile)
        # every group counts for the bytes, and its own size for the result of an all-gather
        assert found["all_reduce"].bytes == _GRADIENTS + _SMALL
        assert found["all_gather"].bytes == 2 * 2 * _SMALL
        # of two groups of data parallelism, both pass each node's link; of an all-to-all, the controller counts all ranks of a node
        assert found["all_reduce"].link_bytes == 2 * _GRADIENTS
        assert found["all_gather"].link_bytes == 2 * 2 * _SMALL
        assert found["broadcast"].link_bytes == found["broadcast"].bytes == _SMALL
        assert found["all_to_all"].link_bytes == found["all_to_all"].bytes == _SMALL
        # and the time in which only groups within the node communicated is a part of the communication
        assert profile.local_exposed_s is not None and profile.local_hidden_s is not None
        assert 0 <= profile.local_exposed_s <= profile.comm_exposed_s
        assert 0 <= profile.local_hidden_s <= profile.comm_hidden_s + 1e-9
        assert 0 < profile.local_exposed_s + profile.local_hidden_s < profile.comm_exposed_s + profile.comm_hidden_s


@pytest.mark.slow
def test_with_ranks_dealt_out_in_turn_data_parallelism_stays_within_the_node(agent: Agent, forked: Program) -> None:
    for profile in profiles(agent, forked, _SLURM_CYCLIC):
        found = uses(profile)
        assert found["all_reduce"].link_bytes == 2 * _SMALL
        assert found["all_gather"].link_bytes == 2 * 2 * _SMALL
        assert found["all_to_all"].link_bytes == 0


def test_without_a_list_of_collectives_those_that_python_calls_are_known(agent: Agent, forked: Program) -> None:
    """DistributedDataParallel and functional collectives call from C++: they count as before, as if all ranks took part."""
    for profile in profiles(agent, forked, _PYTHON_ONLY + _TORCHRUN):
        found = uses(profile)
        assert found["all_reduce"].bytes == _GRADIENTS + _SMALL
        assert found["all_reduce"].link_bytes == _GRADIENTS
        assert found["all_gather"].link_bytes == found["all_gather"].bytes == 2 * 2 * _SMALL


@pytest.mark.parametrize(
    "environment", [pytest.param("", marks=pytest.mark.slow), _ONE_NODE], ids=["not known", "one node"]
)
def test_without_several_known_nodes_nothing_is_said(agent: Agent, forked: Program, environment: str) -> None:
    for profile in profiles(agent, forked, environment):
        assert {use.link_bytes for use in profile.kinds} == {None}
        assert (profile.local_exposed_s, profile.local_hidden_s) == (None, None)
        assert uses(profile)["all_reduce"].bytes == _GRADIENTS + _SMALL


_DATA_PARALLEL = (
    _PROGRAM[: _PROGRAM.index("rows, columns")]
    .replace("world_size=4", "world_size=2")
    .format(
        environment=_TORCHRUN.replace("rank % 2", "0")
        .replace("rank // 2", "rank")
        .replace('"2"', '"1"')
        .replace('"4"', '"2"')
    )
    + """
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
for number in range(80):
    optimizer.zero_grad()
    ddp(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if number == 12: wait_until(lambda: "profile" in sent or client().window is not None)
wait_until(lambda: "profile" in sent)
dist.barrier()
os._exit(0)
"""
)


def test_all_of_a_data_parallel_job_s_bytes_pass_the_links(agent: Agent, forked: Program) -> None:
    done = forked.run_ranks(_DATA_PARALLEL, 2)
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [(0, "", "")] * 2
    agent.close()
    for connection in agent.connections:
        (use,) = connection.profile.kinds
        assert (use.kind, use.bytes, use.link_bytes) == ("all_reduce", _GRADIENTS, _GRADIENTS)
        assert (connection.profile.local_exposed_s, connection.profile.local_hidden_s) == (0.0, 0.0)
