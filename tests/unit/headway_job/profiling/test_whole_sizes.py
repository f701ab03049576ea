"""Bytes of collectives: those of the whole tensor, also where torch's profiler records only one rank's part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from headway_job.profiling import whole_sizes
from headway_job.profiling.whole_sizes import WholeSizes

from tests.unit.headway_job.agent import Program

_RANKS = 3
_PROGRAM = """
import json, os, sys, warnings
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager
from headway_job.profiling import kineto
warnings.simplefilter("ignore")  # older names are deprecated
rank, ranks = int(sys.argv[1]), 3
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=ranks)
pair = dist.new_group([0, 1])
def zeros(number): return torch.zeros(number)
def parts(number=1000): return [zeros(number) for _ in range(ranks)]
def coalesced():
    with _coalescing_manager():
        dist.all_gather_into_tensor(zeros(3000), zeros(1000))
        dist.all_gather_into_tensor(zeros(1500), zeros(500))
calls = {
    "all_gather": lambda: dist.all_gather(parts(), zeros(1000)),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(zeros(3000), zeros(1000)),
    "all_gather_coalesced": coalesced,
    "all_gather_functional": lambda: functional.all_gather_tensor(zeros(1000), 0, dist.group.WORLD).sum(),
    "all_gather_of_two": lambda: rank == 2 or dist.all_gather_into_tensor(zeros(1400), zeros(700), group=pair),
    "all_gather_again": lambda: dist.all_gather(parts(700)[:2], zeros(700), group=pair) if rank < 2 else None,
    "gather": lambda: dist.gather(zeros(1000), None if rank else parts()),
    "scatter": lambda: dist.scatter(zeros(1000), None if rank else parts()),
    "reduce_scatter": lambda: dist.reduce_scatter(zeros(1000), parts()),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(zeros(1000), zeros(3000)),
    "all_to_all": lambda: dist.all_to_all(parts(), parts()),
    "all_to_all_single": lambda: dist.all_to_all_single(zeros(3000), zeros(3000)),
    "broadcast": lambda: dist.broadcast(zeros(3000), 0),
    "reduce": lambda: dist.reduce(zeros(3000), 0),
    "all_reduce": lambda: dist.all_reduce(zeros(3000)),
}
found = {}
for name, call in calls.items():
    recording = kineto.Kineto()
    recording.start()
    call()
    dist.barrier()
    recording.pause()
    events = kineto.read(recording.stop(), lambda: False, kineto.Noted(recording.sizes, None, ranks))
    found[name] = sum(each.bytes for each in events.collectives)
print(json.dumps(found))
sys.stdout.flush()
os._exit(0)
"""


def test_of_every_collective_the_whole_counts(forked: Program) -> None:
    done = forked.run_ranks(_PROGRAM, _RANKS)
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * _RANKS
    root, other, third = (json.loads(one.stdout) for one in done)
    whole = 3 * 1000 * 4
    expected = dict.fromkeys(root, whole) | {
        "all_gather_coalesced": whole + whole // 2,
        "all_gather_of_two": 2 * 700 * 4,
        "all_gather_again": 2 * 700 * 4,
    }
    assert root == expected
    assert other == expected | {"scatter": 0}  # gloo records nothing of it elsewhere than on the root
    assert third == expected | dict.fromkeys(("scatter", "all_gather_of_two", "all_gather_again"), 0)


class Tensor:
    """A tensor, as far as its size goes."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def numel(self) -> int:
        size = 1
        for each in self.shape:
            size *= each
        return size


class Group:
    def size(self) -> int:
        return 4


def noted(method: str, *args: Any) -> WholeSizes:
    sizes = WholeSizes()
    assert sizes.watch(method)(Group(), *args, object()) is False
    return sizes


def test_what_nccl_records_of_each_collective() -> None:
    part, whole = Tensor(10, 2), Tensor(40, 2)
    gathers = [
        (noted("allgather", [[part] * 4], [part]), "nccl:all_gather"),
        (noted("_allgather_base", whole, part), "nccl:_all_gather_base"),
        (noted("allgather_into_tensor_coalesced", [whole], [part]), "nccl:all_gather_into_tensor_coalesced"),
        (noted("gather", [], [part]), "nccl:gather"),
        (noted("scatter", [part], []), "nccl:scatter"),
    ]
    for sizes, name in gathers:
        assert sizes.factor(name, [[10, 2]], 8) == 4
        assert sizes.factor(name, [[10, 3]], 8) == 8  # of a call that was not noted
        assert WholeSizes().factor(name, [[10, 2]], 1) == 1
    for name in (
        "_reduce_scatter_base",
        "reduce_scatter",
        "broadcast",
        "all_reduce",
        "send 0->1",
        "_broadcast_oop",
        "coalesced",
    ):
        assert noted("allgather", [], [part]).factor(f"nccl:{name}", [[10, 2]], 8) == 1


def test_of_a_list_of_which_only_the_first_tensor_is_recorded() -> None:
    sent = [Tensor(10), Tensor(30), Tensor(0), Tensor(20)]
    sizes = noted("alltoall", sent, sent)
    assert sizes.factor("nccl:all_to_all", [[10]], 4) == 6
    assert sizes.factor("nccl:all_to_all", [[10], [30], [0], [20]], 4) == 1
    assert sizes.factor("gloo:all_to_all", [[10]], 4) == 1
    assert noted("alltoall", sent[2:], sent[2:]).factor("nccl:all_to_all", [[0]], 4) == 1


def test_arguments_of_another_version_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert noted("_allgather_base", 1, 2).factor("nccl:_all_gather_base", [[10]], 8) == 8
    assert noted("allgather").factor("nccl:all_gather", [[10]], 8) == 8
    monkeypatch.setattr(whole_sizes, "_MAX_NOTES", 2)
    sizes = WholeSizes()
    for length in range(5):
        sizes.watch("_allgather_base")(Group(), Tensor(4 * length), Tensor(length))
    assert [sizes.factor("nccl:_all_gather_base", [[length]], 1) for length in range(5)] == [4, 4, 1, 1, 1]
