"""The weights in service are always sound: damaged or interrupted promotions end with older ones."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from policies.errors import TrainingError, WeightsError
from policies.learned.dl2.learning.service import ServiceFolder
from policies.learned.dl2.policy import ALL_REDUCE, Dl2
from policies.learned.dl2.system import ENCODER
from policies.learned.evaluation import promotion
from policies.learned.training.run.folder_lock import alone
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


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End this process's changes before the change of that number: a file that is copied, or a rename."""
    changes: dict[tuple[object, str], Callable[..., object]] = {
        (Path, "rename"): Path.rename,
        (shutil, "copyfile"): shutil.copyfile,
    }
    left = step

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def work(*values: object, **named: object) -> object:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return change(*values, **named)

        return work

    for (owner, name), change in changes.items():
        monkeypatch.setattr(owner, name, counted(change))


def killed(monkeypatch: pytest.MonkeyPatch, step: int, change: Callable[[], None]) -> bool:
    """Make a change that is killed at that step, and return whether it was, or has ended before."""
    with monkeypatch.context() as patched:
        killed_at(patched, step)
        try:
            change()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("promotions", [0, 1, 2])
def test_a_kill_during_a_promotion_leaves_sound_weights(
    tmp_path: Path, promotions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = [candidate(tmp_path / f"{number}", 2.0 + number) for number in range(3)]
    for step in range(20):
        # given so many promotions before, and one that ends before one of its changes
        folder = tmp_path / f"learn{step}"
        folder.mkdir()
        for number in range(promotions):
            promotion.put_in_service(tmp_path / f"{number}", folder)
        before = digests[promotions - 1] if promotions else SHIPPED[1].weights_sha256
        new = tmp_path / f"{promotions}"
        is_killed = killed(monkeypatch, step, partial(promotion.put_in_service, new, folder))
        # then the next start serves those before, or those that were promoted, and neither is damaged
        digest, problem = in_service(folder)
        assert digest in {before, digests[promotions]}
        assert problem == ""
        if not is_killed:
            assert digest == digests[promotions]
            break
        # and the next promotion succeeds
        promotion.put_in_service(new, folder)
        assert in_service(folder) == (digests[promotions], "")
    assert step > 3


@pytest.mark.parametrize("change", [promotion.undo, promotion.return_to_shipped])
def test_a_kill_during_a_return_leaves_sound_weights(
    tmp_path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = candidate(tmp_path / "a", 2.0), candidate(tmp_path / "b", 3.0)
    after = first if change is promotion.undo else SHIPPED[1].weights_sha256
    for step in range(20):
        folder = tmp_path / f"learn{step}"
        folder.mkdir()
        promotion.put_in_service(tmp_path / "a", folder)
        promotion.put_in_service(tmp_path / "b", folder)
        is_killed = killed(monkeypatch, step, partial(change, folder))
        assert in_service(folder) in {(second, ""), (after, "")}
        if not is_killed:
            assert in_service(folder) == (after, "")
            break
    assert step > 1


def test_a_start_waits_for_the_promotion_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given another process between the two renames of a promotion
    first, second = candidate(tmp_path / "a", 2.0), candidate(tmp_path / "b", 3.0)
    folder = tmp_path / "learn"
    folder.mkdir()
    promotion.put_in_service(tmp_path / "a", folder)
    found: list[tuple[str, str]] = []
    start = threading.Thread(target=lambda: found.append(in_service(folder)))
    with alone(folder, 0.0):
        shutil.copytree(tmp_path / "b" / "best", folder / promotion.COMING)
        (folder / "best").rename(folder / "previous")
        # when a server starts
        start.start()
        start.join(0.3)
        # then it leaves the folder alone until the other process is done
        assert start.is_alive()
        (folder / promotion.COMING).rename(folder / "best")
    start.join(30)
    assert found == [(second, "")]
    assert first != second
    # and an operator's command says why it does nothing
    monkeypatch.setattr(promotion, "WAIT_S", 0.0)
    with alone(folder, 0.0), pytest.raises(TrainingError, match="another process is changing the weights"):
        promotion.undo(folder)
    assert in_service(folder) == (second, "")


def test_weights_are_in_service_since_their_promotion(tmp_path: Path) -> None:
    # given candidates that were trained long ago
    folder = tmp_path / "learn"
    folder.mkdir()
    for name, factor in (("a", 2.0), ("b", 3.0)):
        candidate(tmp_path / name, factor)
        for place in (*(tmp_path / name / "best").iterdir(), tmp_path / name / "best"):
            os.utime(place, (1e9, 1e9))
    begun_s = time.time() - 1.0
    for change in (
        partial(promotion.put_in_service, tmp_path / "a", folder),
        partial(promotion.put_in_service, tmp_path / "b", folder),
        partial(promotion.undo, folder),
    ):
        change()
        assert service(folder).load().since_s >= begun_s
        os.utime(folder / "best", (1e9, 1e9))
        if (folder / "previous").exists():
            os.utime(folder / "previous", (1e9, 1e9))
