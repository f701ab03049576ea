"""The weights in service are always sound: damaged or interrupted promotions end with older ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from policies.errors import WeightsError
from policies.learned.dl2.learning.service import ServiceFolder
from policies.learned.dl2.policy import ALL_REDUCE, Dl2
from policies.learned.dl2.system import ENCODER
from policies.learned.evaluation import promotion
from policies.learned.weights import weights

SHIPPED = weights.load(weights.pretrained(), ALL_REDUCE, system="dl2", encoder=ENCODER)


def candidate(folder: Path, factor: float) -> str:
    """Write the shipped weights times that factor as a training does, and return their digest."""
    arrays, card = SHIPPED
    return weights.save(
        folder / "best", "dl2", {name: array * factor for name, array in arrays.items()}, card
    ).weights_sha256


def service(folder: Path) -> ServiceFolder:
    return ServiceFolder(folder, "", ALL_REDUCE)


def in_service(folder: Path) -> tuple[str, str]:
    """Digest of the weights in service, and the problem with others."""
    found = service(folder).load()
    return found.card.weights_sha256, found.problem


def test_without_promotions_the_first_weights_are_in_service(tmp_path: Path) -> None:
    found = service(tmp_path).load()
    assert (found.card.weights_sha256, found.since_s, found.problem) == (SHIPPED[1].weights_sha256, 0.0, "")
    assert service(tmp_path).stamp() is None
    # and a copy of them is the same, whatever their name
    assert service(tmp_path).copy(found, tmp_path / "parent") == found.card.weights_sha256


def test_a_promotion_stays_over_restarts_and_can_be_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "learn"
    folder.mkdir()
    digest = candidate(tmp_path / "new", 2.0)
    found = service(folder).promote(tmp_path / "new", digest, service(folder).load())
    assert found.card.weights_sha256 == digest
    assert found.since_s > 0
    assert in_service(folder) == (digest, "")
    # the shipped ones again, without a file of them, and back
    promotion.return_to_shipped(folder)
    assert in_service(folder) == (SHIPPED[1].weights_sha256, "")
    promotion.undo(folder)
    assert in_service(folder) == (digest, "")


def test_weights_that_were_not_compared_are_not_promoted(tmp_path: Path) -> None:
    candidate(tmp_path / "new", 2.0)
    here = service(tmp_path / "learn")
    with pytest.raises(WeightsError, match="not those that were compared"):
        here.promote(tmp_path / "new", "0" * 64, here.load())
    assert not (tmp_path / "learn" / "best").exists()


@pytest.mark.parametrize("damage", ["cut", "zeros", "card", "missing"])
def test_damaged_weights_are_not_served(tmp_path: Path, damage: str) -> None:
    # given two promotions, the last of which is damaged later
    first, second = candidate(tmp_path / "a", 2.0), candidate(tmp_path / "b", 3.0)
    here = service(tmp_path / "learn")
    here.folder.mkdir()  # type: ignore[union-attr]
    here.promote(tmp_path / "a", first, here.load())
    here.promote(tmp_path / "b", second, here.load())
    file = tmp_path / "learn" / "best" / ("dl2.json" if damage == "card" else "dl2.safetensors")
    content = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(content[: len(content) // 2] if damage != "zeros" else bytes(len(content)))
    # then those before them are in service, and the policy can be made
    digest, problem = in_service(tmp_path / "learn")
    assert digest == first
    assert str(file.parent) in problem
    status = Dl2(learn=str(tmp_path / "learn")).learning()
    assert status is not None
    assert (status.weights_sha256, bool(status.problem)) == (first, True)
    # and if these are damaged too, the shipped ones
    shutil.rmtree(tmp_path / "learn" / "previous")
    assert in_service(tmp_path / "learn")[0] == SHIPPED[1].weights_sha256


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_kill_during_a_promotion_leaves_sound_weights(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given weights in service, and a promotion that ends before one of its renames
    first, second = candidate(tmp_path / "a", 2.0), candidate(tmp_path / "b", 3.0)
    folder = tmp_path / "learn"
    folder.mkdir()
    service(folder).promote(tmp_path / "a", first, service(folder).load())
    done = 0
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        nonlocal done
        if done == step:
            raise KeyboardInterrupt
        done += 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    if step < 2:
        with pytest.raises(KeyboardInterrupt):
            promotion.put_in_service(tmp_path / "b", folder)
    else:
        promotion.put_in_service(tmp_path / "b", folder)
    monkeypatch.undo()
    # then the next start serves one of the two
    service(folder).recover()
    assert in_service(folder) == (first if step == 0 else second, "")
