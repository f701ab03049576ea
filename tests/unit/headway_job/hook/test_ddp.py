"""Two real ranks over gloo: their groups and collectives, and their exposed and hidden communication, are reported correctly."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.wire.frames import Group, Hello
from tests.unit.headway_job.agent import FAST_POLLS, SENT, SOCKETS, Agent, Connection, Program, profiling_agent

_RANKS = (
    FAST_POLLS.replace("0.002", "0.02")
    # connect before the first step, so that hello changes later
    + "process.ProcessHook._needs_client = agent_client.AgentClient._needs_connection = lambda self: True\n"
    + SENT
    + SOCKETS
    + """
import os, sys, time
import eager_torch, torch, torch.distributed as dist
torch.set_num_threads(1)
torch.manual_seed(1)
rank = int(sys.argv[1])
connected()
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
def profiled(): return "profile" in sent
def window_opened(): return profiled() or client().window is not None
"""
)
_STEPS = 9


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Agent:
    return profiling_agent(tmp_path, request, steps=_STEPS)


def _by_rank(agent: Agent) -> list[Connection]:
    agent.close()
    assert len(agent.connections) == 2
    return sorted(agent.connections, key=lambda connection: connection.hello.rank)


def test_data_parallel_training(agent: Agent, forked: Program) -> None:
    done = forked.run_ranks(
        _RANKS
        + """
model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(4)])
ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
for number in range(160):
    optimizer.zero_grad()
    ddp(torch.ones(8, 128)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.005)
    if number == 12: wait_until(window_opened)
wait_until(profiled)
dist.destroy_process_group()
""",
        2,
    )
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [(0, "", "")] * 2
    for rank, connection in enumerate(_by_rank(agent)):
        first = connection.frames[0]
        assert isinstance(first, Hello)
        assert (first.rank, first.world_size) == (-1, -1)
        last = [frame for frame in connection.of(Hello) if isinstance(frame, Hello) and frame.rank >= 0][-1]
        assert (last.rank, last.world_size) == (rank, 2)
        size = 4 * (128 * 128 + 128) * 4
        assert (connection.model.param_bytes, connection.model.groups) == (size, (Group("0", 2, "gloo"),))
        assert connection.steps.steps == 160
        profile = connection.profile
        assert _STEPS <= profile.steps <= 8 * _STEPS
        assert profile.compute_s + profile.comm_exposed_s == pytest.approx(profile.step_s)
        assert 0 <= profile.comm_exposed_s < profile.step_s
        (kind,) = profile.kinds
        assert (kind.kind, kind.bytes) == ("all_reduce", size)
        assert kind.count >= 2
        assert kind.seconds == pytest.approx(profile.comm_exposed_s + profile.comm_hidden_s)


_WAITING = """
def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(10))], lr=0.1)
data = torch.ones(1000)
for number in range(30):
    {step}
    optimizer.step()
    if number == 12: wait_until(window_opened)
wait_until(profiled)
"""
"""The window opens after some steps, at the latest in the middle, and its profile has been sent at the end."""
_LEAST_S = 0.02
"""Less than the 50 ms that rank 1 is late in each step: a rank 0 that is held up in some steps waits less in them."""


def test_waiting_for_the_other_rank_is_exposed(agent: Agent, forked: Program) -> None:
    """Rank 1 comes 50 ms late to every all-reduce, and rank 0 has nothing to do meanwhile."""
    forked.run_ranks(_RANKS + _WAITING.format(step="time.sleep(0.05 * rank); dist.all_reduce(data)"), 2)
    profile = _by_rank(agent)[0].profile
    assert profile.comm_exposed_s > profile.comm_hidden_s
    assert profile.comm_exposed_s > _LEAST_S
    assert profile.kinds[0].bytes == 4000


def test_working_beside_the_other_rank_hides_it(agent: Agent, forked: Program) -> None:
    """Rank 1 comes late as before, and rank 0 works for 100 ms before it needs the result."""
    step = (
        "dist.barrier(); time.sleep(0.05 * rank); "
        "work = dist.all_reduce(data, async_op=True); busy(0.1 * (1 - rank)); work.wait()"
    )
    forked.run_ranks(_RANKS + _WAITING.format(step=step), 2)
    # The exposed time of the barrier depends on how busy the machine is, and so does that of the all-reduce beyond the work.
    profile = _by_rank(agent)[0].profile
    (reduced,) = (each for each in profile.kinds if each.kind == "all_reduce")
    assert reduced.seconds > _LEAST_S
    assert profile.comm_hidden_s > _LEAST_S


def test_kinds_of_collectives(agent: Agent, forked: Program) -> None:
    forked.run_ranks(
        _RANKS
        + _WAITING.format(
            step="dist.broadcast(data, 0); dist.all_gather([torch.zeros(1000) for _ in range(2)], data); "
            "dist.all_reduce(data.bfloat16()); dist.barrier(); "
            "(dist.send if rank == 0 else dist.recv)(data[:500].contiguous(), 1 - rank); time.sleep(0.02)"
        ),
        2,
    )
    for connection in _by_rank(agent):
        kinds = {kind.kind: (kind.count, kind.bytes) for kind in connection.profile.kinds}
        assert kinds == {
            "broadcast": (1, 4000),
            "all_gather": (1, 8000),
            "all_reduce": (1, 2000),
            "send_recv": (1, 2000),
            "other": (1, 0),
        }


def test_as_a_trace_of_every_operator_sees_it(program: Program) -> None:
    """The same window seen twice: by the kernel's account of the training thread, and by a full trace of its operators.

    In the trace, the training waits for communication in the gaps between operators in which a collective ends.
    """
    done = program.run_ranks(_RANKS + (Path(__file__).parents[1] / "profiling" / "trace.py").read_text(), 2)
    for one in done:
        assert one.stderr == ""
        step_s, exposed_s, in_trace_s, under_way_s = map(float, one.stdout.split())
        assert 0 < under_way_s < step_s
        assert abs(exposed_s - in_trace_s) < 0.15 * step_s


def test_the_profiler_stops_only_once_what_it_has_recorded_is_over(agent: Agent, forked: Program) -> None:
    """Rank 1 joins a collective of the window only after rank 0 has made many more steps, and has forked.

    gloo's threads write its end into memory that torch frees when the profiler stops.
    """
    done = forked.run_ranks(
        _RANKS
        + """
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(10))], lr=0.1)
data, late = torch.ones(1000), None
def recording(): return torch._C._autograd._profiler_enabled()
def steps(number):
    for _ in range(number):
        optimizer.step()
        time.sleep(0.01)
steps(12)
wait_until(window_opened)
steps(2)
if rank == 0:
    late = dist.all_reduce(data, async_op=True)
    steps(100)
    before = recording()
    if not os.fork():
        os._exit(0)
    os.wait()
    steps(100)
    print(before, recording(), profiled())
    open("joined", "w").close()
    late.wait()
else:
    wait_until(lambda: os.path.exists("joined"))
    dist.all_reduce(data)
dist.barrier()
while recording():
    steps(1)
wait_until(profiled)
print(float(data[0]))
""",
        2,
    )
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [
        (0, "True True False\n2.0\n", ""),
        (0, "2.0\n", ""),
    ]
    waited, joined = (connection.profile for connection in _by_rank(agent))
    assert [kind.kind for kind in waited.kinds] == ["all_reduce"]
    assert waited.steps >= _STEPS > 0 and joined.steps > 0
