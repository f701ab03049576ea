"""Files of earlier versions are read, and what a pickle in them names is never called."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import tarfile
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from headway_job.checkpoints.state import older_file, state_dict  # noqa: E402


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.filterwarnings("ignore:Sparse")
def test_states_of_earlier_versions_come_back() -> None:
    whole = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "own": {"loader": {1: (2, "three", None, True, 0.5, b"\x00\xff", 1j)}, "set": {1, 2}, "milestones": Counter({3: 1})},
        "rng": {"torch": torch.get_rng_state(), "python": [3, list(range(625)), None]},
        "shared": OrderedDict(
            whole=whole, part=whole[1, :, ::2], across=whole.transpose(0, 2), again=whole, none=torch.zeros(0, 3),
            one=torch.tensor(5), half=torch.ones(3, dtype=torch.bfloat16),
            eight=torch.ones(3).to(torch.float8_e5m2), yes=torch.tensor([True, False]),
            number=torch.ones(2, dtype=torch.complex64), sixteen=torch.ones(2, dtype=torch.uint16),
            last=torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
            coo=torch.eye(2).to_sparse(), csr=torch.eye(2).to_sparse_csr(),
        ),
        "kinds": [torch.Size([1, 2]), torch.device("cpu"), torch.float16, bytearray(b"a")],
    }  # fmt: skip
    found = state_dict.read_older(saved(state))

    assert found["own"] == state["own"]
    assert found["kinds"] == state["kinds"]
    assert found["rng"]["python"] == state["rng"]["python"]
    assert found["rng"]["torch"].equal(state["rng"]["torch"])
    assert list(found["shared"]) == list(state["shared"])
    for name, wanted in state["shared"].items():
        tensor = found["shared"][name]
        assert (tensor.dtype, tensor.shape, tensor.layout) == (wanted.dtype, wanted.shape, wanted.layout), name
        assert tensor.to_dense().to(torch.complex128).equal(wanted.to_dense().to(torch.complex128)), name
        assert tensor.layout != torch.strided or not tensor.numel() or tensor.stride() == wanted.stride(), name


class Call:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize(
    "function", [os.system, eval, exec, getattr, __import__, torch.load, torch.hub.load, Path.touch]
)
def test_what_a_pickle_names_is_not_called(function: Callable[..., Any], tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    arguments: tuple[Any, ...] = (f"__import__('pathlib').Path({str(mark)!r}).touch()",)
    if function is os.system:
        arguments = (f"touch {mark}",)
    with pytest.raises(ValueError, match="which no state contains"):
        older_file.read(saved({"own": Call(function, *arguments), "rng": {}}))
    assert not mark.exists()


def test_a_pickle_that_torch_would_execute_is_not() -> None:
    """The file is a real one: without `weights_only`, torch executes it."""
    data = saved({"own": Call(os.putenv, "HEADWAY_TEST_EXECUTED", "yes"), "rng": {}}).getvalue()
    assert torch.load(io.BytesIO(data), weights_only=False)["own"] is None
    with pytest.raises(ValueError, match=f"names {os.name}.putenv"):
        state_dict.read_older(io.BytesIO(data))


def test_archives_of_the_oldest_format_are_refused(tmp_path: Path) -> None:
    """In torch <= 2.5.1, a tar archive is loaded without `weights_only`, whatever the caller says (CVE-2025-32434)."""
    path = tmp_path / "old.tar"
    with tarfile.open(path, "w") as archive:
        for name, value in [("storages", 0), ("tensors", 0), ("pickle", Call(os.system, f"touch {tmp_path}/executed"))]:
            data = pickle.dumps(value)
            row = tarfile.TarInfo(name)
            row.size = len(data)
            archive.addfile(row, io.BytesIO(data))
    with path.open("rb") as file, pytest.raises(ValueError, match="not a zip file"):
        state_dict.read_older(file)
    assert not (tmp_path / "executed").exists()


def archive(pickled: bytes, storage: bytes = bytes(8), method: int = zipfile.ZIP_STORED) -> io.BytesIO:
    """Return an archive with a pickle of our own."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/data/0", storage)
    file.seek(0)
    return file


def tensor(offset: int = 0, shape: str = "(I2\nt", strides: str = "(I1\nt", then: str = "") -> bytes:
    """Return a pickle of a tensor of two floats. `then`: more opcodes, which find the tensor on the stack."""
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQ"
        + f"I{offset}\n{shape}{strides}I00\nccollections\nOrderedDict\n)RtR{then}.".encode()
    )


def test_a_pickle_of_our_own_is_a_tensor() -> None:
    assert older_file.read(archive(tensor())).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "pickled",
    [
        tensor(offset=1),
        tensor(offset=-1),
        tensor(shape="(I3\nt"),
        tensor(strides="(I2\nt"),
        tensor(strides="(I-1\nt"),
        tensor(shape="(I1000000\nt", strides="(I0\nt"),
        tensor(shape="(I1\nI2\nt"),
        tensor(shape="(S'2'\nt"),
        tensor(then="I0\nI1\ns"),  # sets an item of it, as in CVE-2026-24747
        tensor(then="(I0\nI1\nu"),
        tensor(then="I1\na"),
        tensor(then="(dS'_payload'\nI1\nsb"),
        b"ccollections\nCounter\n(Nd(S'update'\nI1\ndtb.",  # sets an attribute of a class
        b"ctorch._utils\n_rebuild_tensor_v2\n(N(dS'__code__'\nI1\nstb.",
        b"(S'storage'\nctorch\nFloatStorage\nS'../0'\nS'cpu'\nI2\ntQ.",
        b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQ.",
        b"(S'module'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQ.",
        b"ctorch\nos\n.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04\x8c\x0bcollections\x8c\x14Counter.__init__.__x\x93.",
        b"",
        b".",
    ],
    ids=range(24),
)
def test_a_pickle_that_torch_does_not_write_is_refused(pickled: bytes) -> None:
    before = vars(Counter).copy()
    with pytest.raises((ValueError, RuntimeError)):
        older_file.read(archive(pickled))
    assert vars(Counter) == before


def test_compressed_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="compressed"):
        older_file.read(archive(tensor(), bytes(1 << 20), zipfile.ZIP_DEFLATED))


def test_an_archive_cut_anywhere_is_refused() -> None:
    whole = saved({"own": {"a": torch.arange(4)}, "rng": {}}).getvalue()
    for end in range(0, len(whole), 7):
        with pytest.raises(ValueError):
            state_dict.read_older(io.BytesIO(whole[:end]))


def test_the_pickles_of_this_test_are_pickles() -> None:
    assert sum(1 for _ in pickletools.genops(tensor())) > 10
