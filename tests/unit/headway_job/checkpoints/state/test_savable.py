"""Values that come back as they were; and those that cannot be saved, which end neither the job nor its other saves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from headway_job.checkpoints.errors import UnsavableError
from headway_job.checkpoints.state.memory import MemoryBudget
from headway_job.checkpoints.state.pytree import deep_copy, with_tiny_tensors
from headway_job.checkpoints.state.tensor_bytes import memory_of

from tests.unit.headway_job.checkpoints.conftest import JOBSIDE, ForkServer
from tests.unit.headway_job.checkpoints.state.test_state_file import back
from tests.unit.headway_job.checkpoints.state.wrapped import Wrapped
from tests.unit.headway_job.checkpoints.test_resume import checkpoints

SCALARS = [
    "float64(0.1)", "float32(0.1)", "float16('nan')", "float64('-inf')", "float64(-0.0)", "int64(-(2**63))", "uint8(255)",
    "int32(7)", "bool_(True)", "bool_(False)", "complex64(1-2j)", "longdouble('0.1')", "datetime64('2026-01-02T03:04:05')",
    "timedelta64(5, 's')",
]  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_numpy_scalars_come_back_bit_by_bit_with_their_types(text: str) -> None:
    numpy = pytest.importorskip("numpy")
    value = eval(f"numpy.{text}", {"numpy": numpy})
    found = back({"best": [value], "keys": {value: 1}})
    assert type(found["best"][0]) is type(value)
    assert found["best"][0].dtype == value.dtype
    assert found["best"][0].tobytes() == value.tobytes()
    assert type(next(iter(found["keys"]))) is type(value)


@pytest.mark.parametrize("text", ["str_('a')", "void(b'ab')", "array(1.0)", "array([1, 2])", "bytes_(b'a')"])
def test_other_values_of_numpy_are_named_before_anything_is_written(text: str) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(UnsavableError, match=r"thing\['a'\]\[0\] cannot be saved: an object of the type numpy\."):
        back({"thing": {"a": [eval(f"numpy.{text}", {"numpy": numpy})]}})


def test_without_numpy_nothing_of_it_is_imported() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(JOBSIDE)!r}); sys.modules['numpy'] = None\n"
        "import io; from headway_job.checkpoints.state import state_dict\n"
        "file = io.BytesIO(); state_dict.encode({'own': {'a': 1.5}, 'rng': {}}).write(file)\n"
        "assert state_dict.read(file)['own'] == {'a': 1.5}\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_bytes_that_the_program_changes_are_copied() -> None:
    given = bytearray(b"ab")
    copy = deep_copy({"a": [given]}, MemoryBudget(None))
    given[0] = 0
    assert copy == {"a": [bytearray(b"ab")]}


def freed() -> Any:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def functional() -> Any:
    functional_tensor: Any = pytest.importorskip("torch._subclasses.functional_tensor")
    with functional_tensor.FunctionalTensorMode():
        return functional_tensor.FunctionalTensor.to_functional(torch.ones(3))


def fake() -> Any:
    with pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode():
        return torch.ones(3)


MADE: dict[str, Callable[[], Any]] = {
    "wrapper": lambda: Wrapped(torch.ones(3)),
    "parameter": lambda: torch.nn.Parameter(Wrapped(torch.ones(3))),
    "meta": lambda: torch.ones(3, device="meta"),
    "freed": freed,
    "functional": functional,
    "fake": fake,
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_memory_of_its_own_is_named_and_never_read(name: str) -> None:
    tensor = MADE[name]()
    uses: list[Callable[[Any], Any]] = [
        lambda tree: deep_copy(tree, MemoryBudget(None), ("net",)),
        lambda tree: with_tiny_tensors(tree, ("net",)),
    ]
    for use in uses:
        with pytest.raises(UnsavableError, match=r"net\['layer'\]\[1\] cannot be saved: it is a tensor of the type"):
            use({"layer": [torch.ones(1), tensor]})


def test_the_memory_of_a_wrapper_is_not_read() -> None:
    with pytest.raises(ValueError, match="has no memory"):
        memory_of(Wrapped(torch.ones(3)))


def test_tensors_with_unusual_memory_are_saved() -> None:
    class Own(torch.Tensor):
        """A class of the script, with memory."""

    given = {
        "zero": torch._efficientzerotensor(3),
        "empty": torch.ones(0, 3),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "own": torch.ones(2).as_subclass(Own),
    }
    copy = back(deep_copy(given, MemoryBudget(None)))
    assert all(copy[name].equal(torch.Tensor.as_subclass(tensor, torch.Tensor)) for name, tensor in given.items())


def test_a_lazy_module_is_taken_before_its_first_step() -> None:
    with_tiny_tensors(torch.nn.LazyLinear(2).state_dict())


def test_a_model_that_is_quantized_by_wrappers_is_refused_at_once(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("state.wrapped.at_once", folder=folder)
    assert ended.ends == [1]
    assert "UnsavableError: model['weight'] cannot be saved: it is a tensor of the type" in ended.logs[0]
    assert not folder.exists()


@pytest.mark.parametrize("what", ["wrapper", "object", "scalar"])
def test_what_comes_into_the_state_later_fails_that_save_only(fork_server: ForkServer, folder: Path, what: str) -> None:
    ended = fork_server.run("state.wrapped.later", folder=folder, what=what)

    assert ended.ends == [0], ended.logs
    if what == "scalar":
        assert ended.reported("saved") == [2, 4, 6]
    else:
        assert ended.reported("saved") == [2, 2, 6]
        assert "thing['now'] cannot be saved: " in ended.logs[0]
        assert ended.reported("folders") == ["step-000000002-0001"], "nothing was written"
    assert len(checkpoints(folder)) == 2
