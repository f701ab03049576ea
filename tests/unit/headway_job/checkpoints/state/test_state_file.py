"""Files of states: what was written comes back, any program can read it, and no file makes a reader do anything else."""

from __future__ import annotations

import base64
import io
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from headway_job.checkpoints.errors import UnsavableError  # noqa: E402
from headway_job.checkpoints.state import state_dict, tensor_file  # noqa: E402
from headway_job.checkpoints.state.memory import MemoryBudget  # noqa: E402
from headway_job.checkpoints.state.pytree import deep_copy  # noqa: E402


def back(tree: Any) -> Any:
    """Write a state and read it."""
    file = io.BytesIO()
    state_dict.encode({"own": tree, "rng": {}}).write(file)
    return state_dict.read(file)["own"]


VALUES = [
    None, True, 1, -(2**70), 0.1, math.inf, "text \ud800 é", b"\x00\xff", bytearray(b"ab"), 1 - 2j,
    [1, [2.0, "three"]], (1, (2,)), {1, 2}, {"a": {1: (None,), (2, "b"): []}, "tensor": [1, 2, 3], "dict": {}}, {},
    torch.Size([2, 3]), torch.device("cuda:1"), torch.bfloat16, Counter({30: 1, 60: 2}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_with_their_types(value: Any) -> None:
    found = back([value])[0]
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_not_a_number_and_the_sign_of_zero_come_back() -> None:
    nan, zero = back([math.nan, -0.0])
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)], ids=str)
def test_tensors_come_back_bit_by_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(max(math.prod(shape), 1)).to(dtype)[: math.prod(shape)].reshape(shape)
    found = back({"here": [tensor]})["here"][0]
    assert (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert (
        found.contiguous().view(-1).view(torch.uint8).equal(tensor.contiguous().view(-1).view(torch.uint8))
        or not found.numel()
    )


def test_memory_formats_come_back() -> None:
    last = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    across = torch.arange(6.0).reshape(2, 3).t()
    part = torch.arange(20.0).reshape(4, 5)[:, ::2]
    tied = torch.zeros(3)
    for tensor, found in zip([last, across, part, tied, tied], back([last, across, part, tied, tied]), strict=True):
        assert found.equal(tensor)
        assert found.stride() == (tensor.stride() if tensor is not part else (3, 1))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "not coalesced", "csr", "csc"])
def test_sparse_tensors_come_back(layout: str) -> None:
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    tensor = {
        "coo": dense.to_sparse,
        "not coalesced": lambda: torch.sparse_coo_tensor(
            torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 1.0]), (2, 2), check_invariants=True
        ),
        "csr": dense.to_sparse_csr,
        "csc": dense.to_sparse_csc,
    }[layout]()
    (found,) = back([tensor])
    assert found.layout == tensor.layout
    assert found.to_dense().equal(tensor.to_dense())
    if layout in ("coo", "not coalesced"):
        assert found.is_coalesced() == tensor.is_coalesced()


class Number(int):
    """A type that would come back as another one."""


@pytest.mark.parametrize("value", [Path(), Number(1), len, torch.nn.Linear(1, 1), OrderedDict(), frozenset()], ids=repr)
def test_other_types_are_not_written(value: object) -> None:
    with pytest.raises(UnsavableError, match=r"loader\['a'\]\[1\]\['b'\] cannot be saved: an object of the type"):
        state_dict.encode({"own": {"loader": {"a": [0, {"b": value}]}}})


def test_any_program_can_read_the_tensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = tmp_path / "rank-0.safetensors"
    with path.open("wb") as file:
        shared = {"w": torch.arange(6.0).reshape(2, 3), "c": torch.ones(2, dtype=torch.complex128)}
        state_dict.encode({"own": {}, "rng": {}, "shared": shared}).write(file)
    with safetensors.safe_open(path, "pt") as opened:
        assert opened.metadata()["headway_state"] == "1"
        assert opened.get_tensor("0").equal(torch.arange(6.0).reshape(2, 3))
        assert opened.get_tensor("1").view(torch.complex128).equal(torch.ones(2, dtype=torch.complex128))


# --- files that others have written


def made(header: object, data: bytes = b"") -> io.BytesIO:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)


def state(tree: object, offsets: object = (0, 8), version: str = "1") -> dict[str, object]:
    text = tree if isinstance(tree, str) else json.dumps(tree)
    return {"__metadata__": {"headway_state": version, "state": text}, "0": {"data_offsets": offsets}}


def of(tensor: object) -> dict[str, object]:
    """Return the text of a state with one tensor."""
    return {"dict": [["own", "rng"], [{"tensor": tensor}, {"dict": [[], []]}]]}


SCALARS = {
    "|O": bytes(8), "<U1": bytes(4), "<f8": bytes(7), "<i8": bytes(16), "<i5": bytes(5), "<f8,<f8": bytes(16)
}  # fmt: skip
"""Descriptions of NumPy's types that are not written, or do not fit their bytes."""


def scalar(name: str, data: bytes) -> dict[str, object]:
    """Return the text of a state with a tensor and a NumPy scalar."""
    coded = {"numpy": [name, base64.b64encode(data).decode()]}
    return {"dict": [["own", "rng"], [{"tensor": [0, "int64", [1]]}, coded]]}


HOSTILE = {
    "empty": io.BytesIO(),
    "a header longer than the file": io.BytesIO((1 << 62).to_bytes(8, "little")),
    "no json": made(b"{"),
    "no object": made([]),
    "no metadata": made({}),
    "another version": made(state(of([0, "int64", [1]]), version="2"), bytes(8)),
    "deep": made(state("[" * 100_000), bytes(8)),
    "beyond the file": made(state(of([0, "int64", [1]]), (8, 16)), bytes(8)),
    "before the data": made(state(of([0, "int64", [1]]), (-8, 0)), bytes(8)),
    "a large shape": made(state(of([0, "int64", [1 << 60]])), bytes(8)),
    "a negative shape": made(state(of([0, "int64", [-1, -1]])), bytes(8)),
    "no shape": made(state(of([0, "int64", ["1"]])), bytes(8)),
    "no offsets": made(state(of([0, "int64", [1]]), None), bytes(8)),
    "text as offsets": made(state(of([0, "int64", [1]]), ["0", "8"]), bytes(8)),
    "no type": made(state(of([0, "load", [1]])), bytes(8)),
    "a quantized type": made(state(of([0, "qint8", [8]])), bytes(8)),
    "another number": made(state(of([1, "int64", [1]])), bytes(8)),
    "an impossible order": made(state(of([0, "int64", [1], [7]])), bytes(8)),
    "a kind that is a function": made(state({"os.system": "true"}), bytes(8)),
    "a type that is a function": made(
        state({"dict": [["own", "rng"], [{"tensor": [0, "int64", [1]]}, {"dtype": "load"}]]}), bytes(8)
    ),
    "indices outside of a sparse tensor": made({
        "__metadata__": {"headway_state": "1", "state": json.dumps({"dict": [["own", "rng"], [{"sparse": [
            "sparse_coo", [2], False, {"tensor": [0, "int64", [1, 1]]}, {"tensor": [1, "float32", [1]]}]}, {}]]})},
        "0": {"data_offsets": [0, 8]}, "1": {"data_offsets": [8, 12]},
    }, (1 << 40).to_bytes(8, "little") + bytes(4)),
    **{f"a NumPy scalar {name}": made(state(scalar(name, data)), bytes(8)) for name, data in SCALARS.items()},
    "another state": made(state({"dict": [["x"], [{"tensor": [0, "int64", [1]]}]]}), bytes(8)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_not_as_written_is_refused(name: str) -> None:
    HOSTILE[name].seek(0)
    with pytest.raises((ValueError, RuntimeError)):
        state_dict.read(HOSTILE[name])


def test_a_truncated_file_is_refused_wherever_it_ends() -> None:
    file = io.BytesIO()
    state_dict.encode({"own": {"a": torch.arange(4)}, "rng": {}}).write(file)
    whole = file.getvalue()
    for end in range(len(whole)):
        with pytest.raises(ValueError):
            state_dict.read(io.BytesIO(whole[:end]))


def test_a_text_that_is_too_long_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "_MAX_HEADER_BYTES", 100)
    with pytest.raises(ValueError, match="give large parts of it as tensors"):
        state_dict.encode({"own": "x" * 100, "rng": {}}).write(io.BytesIO())


# --- what torch's own objects have


LR = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda optimizer: LR.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "MultiStepLR": lambda optimizer: LR.MultiStepLR(optimizer, [2, 3]),
    "StepLR": lambda optimizer: LR.StepLR(optimizer, 2),
    "ExponentialLR": lambda optimizer: LR.ExponentialLR(optimizer, 0.9),
    "CosineAnnealingLR": lambda optimizer: LR.CosineAnnealingLR(optimizer, 5),
    "CosineAnnealingWarmRestarts": lambda optimizer: LR.CosineAnnealingWarmRestarts(optimizer, 5),
    "OneCycleLR": lambda optimizer: LR.OneCycleLR(optimizer, 0.1, total_steps=9),
    "CyclicLR": lambda optimizer: LR.CyclicLR(optimizer, 0.1, 0.2, cycle_momentum=False),
    "PolynomialLR": lambda optimizer: LR.PolynomialLR(optimizer, 5),
    "ReduceLROnPlateau": lambda optimizer: LR.ReduceLROnPlateau(optimizer),
    "SequentialLR": lambda optimizer: LR.SequentialLR(optimizer, two_schedulers(optimizer), [2]),
    "ChainedScheduler": lambda optimizer: LR.ChainedScheduler(two_schedulers(optimizer)),
}
"""Made when a test wants them: the first optimizer of a process imports torch's compiler, and collecting tests does not need it."""


def two_schedulers(optimizer: Any) -> list[Any]:
    return [LR.LinearLR(optimizer), LR.ExponentialLR(optimizer, 0.9)]


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore")
def test_the_state_of_every_scheduler_that_torch_can_load_safely_comes_back(name: str) -> None:
    state = deep_copy(SCHEDULERS[name](torch.optim.SGD([torch.zeros(1)])).state_dict(), MemoryBudget(None))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        wanted = torch.load(file, weights_only=True)
    except Exception:  # noqa: BLE001 - such a state could not be saved before either
        pytest.skip("torch does not load it without executing code")
    assert back(state) == wanted == state


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS", "Adafactor", "NAdam", "Rprop", "ASGD"]
)
def test_the_state_of_every_optimizer_comes_back(name: str) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 3)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    state = deep_copy(optimizer.state_dict(), MemoryBudget(None))
    assert repr(back(state)) == repr(state)
