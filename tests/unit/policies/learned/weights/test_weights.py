"""Weights are read back bit by bit, or refused with an error that says what is wrong."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.errors import WeightsError
from policies.learned.weights.card import ModelCard
from policies.learned.weights.weights import load, located, pretrained, save
from tests.unit.policies.learned.examples.cards import card

Tensors = dict[str, Any]


@pytest.fixture
def tensors() -> Tensors:
    rng = np.random.default_rng(3)
    return {
        "body.weight": rng.normal(size=(8, 4)).astype(np.float32),
        "body.bias": np.zeros(8, dtype=np.float32),
        "steps": np.array(12),
        "mask": np.array([True, False]),
    }


@pytest.fixture
def folder(tmp_path: Path, tensors: Tensors) -> Path:
    save(tmp_path, "toy", tensors, card())
    return tmp_path


def refused(folder: Path, **asked: Any) -> str:
    with pytest.raises(WeightsError) as error:
        load(folder, "toy", **({"system": "toy", "encoder": "toy/1"} | asked))
    assert str(folder) in str(error.value)
    return str(error.value)


def recard(folder: Path, **changes: Any) -> None:
    """A card that an attacker has made to fit the file beside it."""
    path = folder / "toy.json"
    content = (folder / "toy.safetensors").read_bytes()
    entries = {"weights_sha256": hashlib.sha256(content).hexdigest(), **changes}
    path.write_text(replace(ModelCard.from_json(path.read_text(), ""), **entries).to_json())


def test_are_read_back_to_the_bit(folder: Path, tensors: Tensors) -> None:
    loaded, found = load(folder, "toy", system="toy", encoder="toy/1", network=tensors)
    assert set(loaded) == set(tensors)
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()
        assert loaded[name].flags.writeable
    assert found.parameters == 32 + 8 + 1 + 2
    assert found.weights_sha256 == hashlib.sha256((folder / "toy.safetensors").read_bytes()).hexdigest()
    assert replace(found, parameters=0, weights_sha256="") == card()
    assert sorted(path.name for path in folder.iterdir()) == ["toy.json", "toy.safetensors"]


def test_equal_weights_make_equal_files(folder: Path, tmp_path: Path, tensors: Tensors) -> None:
    save(tmp_path / "other", "toy", dict(reversed(tensors.items())), card())
    for name in ("toy.json", "toy.safetensors"):
        assert (tmp_path / "other" / name).read_bytes() == (folder / name).read_bytes()


def test_torch_gets_what_torch_gave(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from policies.learned.weights.weights import fill

    network, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    save(tmp_path, "toy", network.state_dict(), card())
    loaded, _ = load(tmp_path, "toy", system="toy", encoder="toy/1", network=other.state_dict())
    fill(other, loaded)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    wrong = refused(tmp_path, network=torch.nn.Linear(3, 4).state_dict())
    assert (
        "bias is float32 2, the network has float32 4" in wrong or "float32 2x3, the network has float32 4x3" in wrong
    )
    assert "is float32 2, the network has float64 2" in refused(
        tmp_path, network=dict(reversed(torch.nn.Linear(3, 2).double().state_dict().items()))
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_file_cut_short_anywhere_is_refused(folder: Path, data: st.DataObject) -> None:
    path = folder / "toy.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    try:
        assert "cut short" in refused(folder)
        recard(folder)
        refused(folder)
    finally:
        path.write_bytes(content)
        recard(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_flipped_bit_anywhere_is_refused(folder: Path, data: st.DataObject) -> None:
    path = folder / "toy.safetensors"
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    reported = refused(folder)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert "copy both files again" in reported


def test_a_flipped_bit_among_the_numbers_is_reported_as_damage(folder: Path) -> None:
    path = folder / "toy.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "its SHA-256 is not the card's: the file is damaged" in refused(folder)
    path.write_bytes(content + b"x")
    assert "1 bytes longer than its header says" in refused(folder)


def test_swapped_files_are_refused(folder: Path, tmp_path: Path, tensors: Tensors) -> None:
    other = tmp_path / "other"
    save(other, "toy", tensors, card(seed=8))
    (folder / "toy.safetensors").write_bytes((other / "toy.safetensors").read_bytes())
    reported = refused(folder)
    assert "weights of toy toy/1 seed 8 beside a card of toy toy/1 seed 7: files were swapped" in reported


def test_weights_of_another_system_are_refused(folder: Path) -> None:
    assert "weights of toy, not of sched2" in refused(folder, system="sched2")
    assert "made for encoder toy/1, this Headway has toy/2" in refused(folder, encoder="toy/2")


def test_missing_files_are_reported(folder: Path) -> None:
    (folder / "toy.safetensors").unlink()
    assert "toy.safetensors: no such file" in refused(folder)
    (folder / "toy.json").unlink()
    assert "toy.json: no such file" in refused(folder)
    (folder / "toy.json").mkdir()
    assert "toy.json: cannot be read" in refused(folder)
    with pytest.raises(WeightsError, match="no such file"):
        load(pretrained(), "toy", system="toy", encoder="toy/1")


def test_a_card_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "toy.json").write_bytes(b"\xff\xfe")
    assert "not a model card" in refused(folder)


@pytest.mark.parametrize("name", ["", "../toy", "a/b", ".toy"])
def test_name_leads_nowhere_else(folder: Path, name: str) -> None:
    with pytest.raises(WeightsError, match="is not a name of weights"):
        load(folder, name, system="toy", encoder="toy/1")
    with pytest.raises(WeightsError, match="is not a name of weights"):
        save(folder, name, {}, card())


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_neither_saved_nor_loaded(folder: Path, tensors: Tensors, number: float) -> None:
    import safetensors.numpy

    before = (folder / "toy.safetensors").read_bytes()
    tensors["body.bias"][3] = number
    with pytest.raises(WeightsError, match=r"body\.bias has numbers that are NaN or infinite; the training diverged"):
        save(folder, "toy", tensors, card())
    assert (folder / "toy.safetensors").read_bytes() == before
    (folder / "toy.safetensors").write_bytes(safetensors.numpy.save(tensors))
    recard(folder)
    assert "body.bias has numbers that are NaN or infinite" in refused(folder)


def test_a_network_of_another_form_is_reported_by_tensor(folder: Path, tensors: Tensors) -> None:
    without = {name: tensor for name, tensor in tensors.items() if name != "mask"}
    assert "tensor mask is not in the network" in refused(folder, network=without)
    assert "tensor head is missing" in refused(folder, network=tensors | {"head": tensors["mask"]})
    turned = tensors | {"body.weight": tensors["body.weight"].T}
    assert "body.weight is float32 8x4, the network has float32 4x8" in refused(folder, network=turned)
    longer = tensors | {"steps": np.zeros(1, dtype=np.int64)}
    assert "steps is int64 scalar, the network has int64 1" in refused(folder, network=longer)


def test_a_card_with_other_counts_is_refused(folder: Path) -> None:
    recard(folder, parameters=42)
    assert "says 42 parameters, there are 43" in refused(folder)


class Trap:
    """An object that the test would notice if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("unpickled"),)


def test_pickle_is_not_unpickled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "toy.safetensors").write_bytes(pickle.dumps(Trap()))
    recard(folder)
    assert "no safetensors file of known types" in refused(folder)
    assert not (folder / "unpickled").exists()


@pytest.mark.parametrize(
    "header",
    [{}, {"__metadata__": 3}, {"a": 3}, {"a": {"data_offsets": ["x", "y"]}}, {"a": {"data_offsets": [0, 1e999]}}, []],
)
def test_an_empty_header_is_refused(folder: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (folder / "toy.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"1234")
    assert "copy both files again" in refused(folder)


def test_type_that_numpy_does_not_have_is_refused(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    import safetensors.torch

    content = safetensors.torch.save({"a": torch.zeros(2, dtype=torch.bfloat16)})
    (folder / "toy.safetensors").write_bytes(content)
    recard(folder)
    assert "no safetensors file of known types" in refused(folder)


def test_killed_between_the_two_files_leaves_no_wrong_pair(folder: Path, tensors: Tensors) -> None:
    tensors["body.bias"] += 1
    old = (folder / "toy.json").read_text()
    save(folder, "toy", tensors, card())
    (folder / "toy.json").write_text(old)
    assert "its SHA-256 is not the card's" in refused(folder)
    save(folder, "toy", tensors, card())
    load(folder, "toy", system="toy", encoder="toy/1", network=tensors)


def test_weights_are_found_in_the_folder_of_a_training_in_a_plain_one_and_in_the_package(tmp_path: Path) -> None:
    assert located("", "toy", "toy-heavy") == (pretrained(), "toy-heavy")
    assert located(str(tmp_path), "toy", "toy-heavy") == (tmp_path, "toy")
    (tmp_path / "best").mkdir()
    assert located(str(tmp_path), "toy", "toy-heavy") == (tmp_path / "best", "toy")
