"""Checkpoints use only names that torch 2.0 has. Newer names are optional: without them, the user gets a message."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.headway_job.checkpoints.conftest import JOBSIDE, ForkServer

IN_2_0 = {
    *(
        "Tensor",
        "dtype",
        "empty",
        "empty_like",
        "frombuffer",
        "tensor",
        "zeros",
        "int64",
        "uint8",
        "no_grad",
        "__version__",
    ),
    *(
        "device",
        "Size",
        "sparse_coo_tensor",
        "sparse_compressed_tensor",
        "initial_seed",
        "manual_seed",
        "get_rng_state",
        "set_rng_state",
        "nn.Module",
        "optim.Optimizer",
    ),
    *("cuda.is_available", "cuda.is_initialized", "cuda.current_stream", "cuda.get_rng_state", "cuda.set_rng_state"),
    *("distributed.is_available", "distributed.is_initialized", "distributed.new_group", "distributed.get_rank"),
    *(
        "qint8",
        "quint8",
        "qint32",
        "quint4x2",
        "quint2x4",
        "distributed.destroy_process_group",
        "distributed.group.WORLD",
    ),
    *("distributed.get_world_size", "distributed.all_reduce", "distributed.all_gather", "distributed.ReduceOp"),
}
"""Names that torch 2.0 has. Add a name only after you have checked that."""
LATER = {"torch.distributed.checkpoint.state_dict"}
"""Imported for FSDP1 only, in a try statement."""
OPTIONAL = {"torch.distributed.distributed_c10d._get_default_store"}
"""Used in a try statement; without it the ranks do not meet before they make a group."""
PACKAGE = JOBSIDE / "headway_job"
WRITES_CHECKPOINTS = sorted(str(path.relative_to(PACKAGE)) for path in (PACKAGE / "checkpoints").rglob("*.py"))


def used(path: Path) -> set[str]:
    """Return the dotted names of torch in a file, each as long as possible."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            found |= {f"{node.module}.{each.name}" for each in node.names}
        chain: list[str] = []
        at: ast.AST = node
        while isinstance(at, ast.Attribute):
            chain.insert(0, at.attr)
            at = at.value
        if isinstance(at, ast.Name) and chain:
            if at.id == "self" and chain[0] == "_dist":
                at, chain = ast.Name("dist"), chain[1:]
            if at.id in ("torch", "dist") and chain:
                found.add(".".join([{"torch": "torch", "dist": "torch.distributed"}[at.id], *chain]))
    return {name for name in found if not any(other.startswith(name + ".") for other in found)}


@pytest.mark.parametrize("name", WRITES_CHECKPOINTS)
def test_python_3_8_can_read_it_and_torch_2_0_has_what_it_uses(name: str) -> None:
    known = {f"torch.{each}" for each in IN_2_0} | LATER | OPTIONAL
    assert {each for each in used(PACKAGE / name) if not any(
        each == one or each.startswith(one + ".") for one in known
    )} == set()  # fmt: skip


def test_nothing_is_loaded_with_torch_load() -> None:
    """`weights_only` of torch < 2.10 can be bypassed, so no file is given to it."""
    assert not {"torch.load", "torch.save"} & {each for name in WRITES_CHECKPOINTS for each in used(PACKAGE / name)}


def test_names_later_than_2_0_are_used_where_expected() -> None:
    assert used(PACKAGE / "checkpoints" / "state" / "dtensor.py") >= LATER


def test_a_torch_without_it_refuses_fsdp1_and_says_why(fork_server: ForkServer, tmp_path: Path) -> None:
    ended = fork_server.run("state.sharded.older_torch", 2, folder=tmp_path / "checkpoints")

    assert ended.ends == [1, 1]
    assert "FullyShardedDataParallel can be saved with torch 2.2 or later" in ended.logs[0]
