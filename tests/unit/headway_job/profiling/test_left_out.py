"""Calls that a recording leaves out: nothing that it has recorded is written to after torch has freed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.headway_job.agent import Program

_RECORDING = """
import gc, os, sys
import torch, torch.distributed as dist
from headway_job.profiling.kineto import Kineto
RANK = int(sys.argv[1]) if len(sys.argv) > 1 else 0
RANKS = 2 if len(sys.argv) > 1 else 1
def join():
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=RANK, world_size=RANKS)
def stopped(recording):
    recording.pause()
    return [event.name() for event in recording.stop().events()]
def fill():
    gc.collect()
    return [bytearray(b"\\xaa" * (64 << power)) for power in range(15) for _ in range(100)]
def written(blocks):
    return sum(block.count(0xAA) != len(block) for block in blocks)
annotation = torch.autograd.profiler.record_function
"""
"""In front of a program: `fill` takes the memory that a recording has left free, and `written` counts the blocks that something
else has changed since."""


def test_receives_that_are_waited_for_later(forked: Program) -> None:
    """gloo ends them in the thread that waits, with another profiler or without one."""
    done = forked.run_ranks(
        _RECORDING
        + """
join()
inbox = [torch.zeros(4) for _ in range(600)]
if RANK:
    dist.barrier()
    for number, _ in enumerate(inbox): dist.send(torch.ones(4), 0, tag=number)
else:
    recording = Kineto()
    recording.start()
    posted = [dist.irecv(tensor, 1, tag=number) for number, tensor in enumerate(inbox)]
    names = stopped(recording)
    blocks = fill()
    dist.barrier()
    for each in posted: each.wait()
    print(names, written(blocks), sum(int(tensor.sum()) for tensor in inbox))
dist.barrier()
""",
        2,
    )
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [(0, "[] 0 2400\n", ""), (0, "", "")]


@pytest.mark.parametrize("later", ["Kineto().start()", "torch.profiler.profile().start()"], ids=["window", "program"])
def test_annotations_that_are_left_later(tmp_path: Path, later: str) -> None:
    done = Program(tmp_path, None).run(
        _RECORDING
        + f"""
recording = Kineto()
recording.start()
held = [annotation(f"epoch {{number}}") for number in range(600)]
for each in held: each.__enter__()
names = stopped(recording)
blocks = fill()
{later}
for each in held: each.__exit__(None, None, None)
print(names, written(blocks), flush=True)
os._exit(0)
"""
    )
    assert (done.returncode, done.stdout) == (0, "[] 0\n")


def test_what_is_within_an_annotation_is_recorded(forked: Program) -> None:
    done = forked.run(
        _RECORDING
        + """
join()
recording = Kineto()
recording.start()
with annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
    with annotation("training_step"):
        dist.all_reduce(torch.ones(3))
print(stopped(recording))
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__', 'gloo:all_reduce']\n"


def test_the_programs_own_profiler_sees_everything_again(tmp_path: Path) -> None:
    done = Program(tmp_path, None).run(
        _RECORDING
        + """
GROUP = torch._C._distributed_c10d.ProcessGroup
methods = lambda: [GROUP.send, GROUP.recv, GROUP.recv_anysource, annotation.__enter__]
before = methods()
recording = Kineto()
recording.start()
print([now is then for now, then in zip(methods(), before)])
with annotation("first"):
    pass
recording.pause()
with annotation("second"):  # does not switch recording on again
    pass
print([event.name() for event in recording.stop().events()], methods() == before)
with torch.profiler.profile() as mine:
    with annotation("mine"):
        torch.ones(3)
print([event.count for event in mine.key_averages() if event.key in ("mine", "aten::ones")])
"""
    )
    assert (done.returncode, done.stdout) == (0, "[False, False, False, False]\n[] True\n[1, 1]\n")


def test_a_method_that_something_else_replaces_meanwhile(forked: Program) -> None:
    """Its replacement stays, and the original is reached through both."""
    done = forked.run(
        _RECORDING
        + """
recording = Kineto()
recording.start()
found = annotation.__enter__
def entering(self):
    print("entered", self.name)
    return found(self)
annotation.__enter__ = entering
names = stopped(recording)
with annotation("later"):
    pass
print(names, annotation.__enter__ is entering)
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "entered later\n[] True\n", "")


def test_programs_that_look_closely_at_these_methods(forked: Program) -> None:
    """A process group in Python that leaves `send` to its base class, and a script that compiles an annotation."""
    done = forked.run(
        _RECORDING
        + """
import warnings
warnings.simplefilter("ignore")  # torch.jit is deprecated
class Group(dist.ProcessGroup):
    def __init__(self): super().__init__(0, 1)
    def getBackendName(self): return "mine"
def refused():
    try:
        Group().send([torch.ones(1)], 0, 0)
    except Exception as error:
        return type(error).__name__
import pathlib
pathlib.Path("scripted.py").write_text('''
import torch
def annotated(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.profiler.record_function("scripted"):
        return x + 1
''')
sys.path.insert(0, ".")
import scripted
recording = Kineto()
recording.start()
print(refused())
print(torch.jit.script(scripted.annotated)(torch.ones(1)))
stopped(recording)
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "RuntimeError\ntensor([2.])\n", "")


@pytest.mark.slow
def test_nothing_is_compiled_for_a_window(tmp_path: Path) -> None:
    """A compiled program with collectives and annotations after graph breaks: Dynamo sees no function of Headway."""
    done = Program(tmp_path, None).run(
        _RECORDING
        + """
import warnings
import torch._dynamo
from torch._dynamo.utils import counters
warnings.simplefilter("ignore")  # of graph breaks
join()
@torch._dynamo.decorators.skip
def annotated(x):
    with annotation("mine"):
        return x + 1
def f(x, out):
    y = x * 2
    dist.gather(y, [out])
    return annotated(out) * 2
compiled = torch.compile(f, backend="eager", dynamic=True)
def steps():
    counters.clear()
    for n in range(2, 14):
        x = torch.ones((n, 3) if n % 2 else (n, 3, 2))
        assert int(compiled(x, torch.zeros_like(x)).sum()) == 6 * x.numel()
    return sum(counters["frames"].values())
steps()
print(steps())
torch._dynamo.config.error_on_recompile = True
recording = Kineto()
recording.start()
print(steps())
print(set(stopped(recording)))
print(steps())
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n0\n{'gloo:gather'}\n0\n", "")


@pytest.mark.slow
def test_sends_of_a_program_that_has_imported_dynamo(tmp_path: Path) -> None:
    """Those that end before the next step are recorded, as in all other programs."""
    done = Program(tmp_path, None).run_ranks(
        _RECORDING
        + """
import torch._dynamo
join()
recording = Kineto()
recording.start()
if RANK:
    dist.recv(torch.zeros(4), 0)
    dist.irecv(torch.zeros(4), 0).wait()
else:
    dist.send(torch.ones(4), 1)
    dist.isend(torch.ones(4), 1).wait()
print(stopped(recording))
dist.barrier()
""",
        2,
    )
    assert [(one.returncode, one.stdout, one.stderr) for one in done] == [
        (0, "['gloo:send']\n", ""),
        (0, "['gloo:recv']\n", ""),
    ]
