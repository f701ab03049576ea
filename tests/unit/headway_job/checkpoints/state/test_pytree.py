"""torch's classes and classes derived from them are recognized without an import."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")

from pathlib import Path

import torch
from headway_job.checkpoints.state.memory import MemoryBudget
from headway_job.checkpoints.state.pytree import deep_copy, has_shard, is_shard, is_torch_type, unwrap
from torch import nn

from tests.unit.headway_job.checkpoints.conftest import ForkServer


def placed(kind: type) -> Any:
    """Return a tensor of that class, without ranks."""
    return torch.Tensor._make_subclass(kind, torch.zeros(2))  # type: ignore[attr-defined]


def test_shards_and_what_is_derived_from_them() -> None:
    from torch.distributed._shard.sharded_tensor.api import ShardedTensor
    from torch.distributed.tensor import DTensor

    for base in (DTensor, ShardedTensor):
        derived = type("Mine", (base,), {})
        assert is_shard(placed(base))
        assert is_shard(placed(derived))
        assert has_shard({"a": [torch.zeros(1), placed(derived)]})


def test_a_class_of_the_script_with_such_a_name_is_not_torchs() -> None:
    named = type("DTensor", (torch.Tensor,), {"__module__": "torchlike.tensor"})
    model = type("DistributedDataParallel", (nn.Linear,), {"__module__": "__main__"})(1, 1)

    assert not is_shard(placed(named))
    assert not is_shard("DTensor")
    assert unwrap(model) is model


def test_wrappers_are_removed() -> None:
    derived = type("Mine", (nn.DataParallel,), {})
    model = nn.Linear(1, 1)

    assert is_torch_type(derived(model), "DataParallel")
    assert unwrap(derived(nn.DataParallel(model))) is model


def test_a_compiled_model_is_saved_as_the_original(fork_server: ForkServer, tmp_path: Path) -> None:
    ended = fork_server.run("training.compiled", folder=tmp_path / "run")

    assert ended.reported("saved") == ended.reported("given") == ["bias", "weight"]


INDEX, VALUE = 8, 4


@pytest.mark.parametrize(
    ("layout", "size_bytes"),
    [
        ("strided", 64 * VALUE),
        ("sparse_coo", 3 * (2 * INDEX + VALUE)),
        ("sparse_csr", (9 + 3) * INDEX + 3 * VALUE),
        ("sparse_csc", (9 + 3) * INDEX + 3 * VALUE),
        ("sparse_bsr", (5 + 2) * INDEX + 2 * 4 * VALUE),
        ("sparse_bsc", (5 + 2) * INDEX + 2 * 4 * VALUE),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_only_the_values_of_a_sparse_tensor_are_counted(layout: str, size_bytes: int) -> None:
    dense = torch.zeros(8, 8)
    dense[0, 0] = dense[1, 1] = dense[4, 6] = 1
    blocks = {"blocksize": (2, 2)} if layout.startswith("sparse_b") else {}
    given = dense if layout == "strided" else dense.to_sparse(layout=getattr(torch, layout), **blocks)

    copy = deep_copy([given], MemoryBudget(size_bytes))

    assert torch.equal(copy[0].to_dense(), dense)
    with pytest.raises(MemoryError):
        deep_copy([given], MemoryBudget(size_bytes - 1))


def test_a_sparse_tensor_is_not_counted_as_if_it_were_dense() -> None:
    place = torch.tensor([[1, 1], [2, 2]])
    twice = torch.sparse_coo_tensor(place, torch.ones(2), (1 << 20, 1 << 20), check_invariants=True)

    copy = deep_copy(twice.requires_grad_(), MemoryBudget(2 * (2 * INDEX + VALUE)))

    assert copy.coalesce().values().tolist() == [2]


def test_a_counter_is_copied_as_it_is() -> None:
    """MultiStepLR keeps its milestones in one."""
    copied = deep_copy({"milestones": Counter({30: 1, 60: 2})}, MemoryBudget(None))
    assert copied == {"milestones": Counter({30: 1, 60: 2})}
    assert type(copied["milestones"]) is Counter
