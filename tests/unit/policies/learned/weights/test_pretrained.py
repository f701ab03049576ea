"""The weights that come with Headway: they are complete and small, decide alike every time, and are installed by pip."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest

pytest.importorskip("safetensors", reason="weights are in safetensors")

from policies.api import ENTRY_POINT_GROUP, load_policy, option_names, policy_names
from policies.errors import PolicyLoadError
from policies.learned.weights.card import ModelCard
from policies.learned.weights.weights import load
from tests.unit.policies.states.cluster import Job, Node, cluster

ROOT = Path(__file__).resolve().parents[5]
FOLDER = ROOT / "policies/learned/pretrained"
NAMES = sorted({path.stem for path in FOLDER.glob("*.*")})
MOST_BYTES = 5 << 20
OURS = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.module.startswith("policies.learned.")}
LEARNED = [name for name in policy_names() if name in OURS and "weights" in option_names(name)]


@pytest.mark.parametrize("name", NAMES)
def test_card_and_weights_belong_together_and_are_small(name: str) -> None:
    path = FOLDER / f"{name}.json"
    card = ModelCard.from_json(path.read_text(), str(path))
    arrays, again = load(FOLDER, name, system=card.system, encoder=card.encoder)
    assert again == card
    assert arrays
    assert card.results
    assert (FOLDER / f"{name}.safetensors").stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_policy_that_is_listed_has_its_weights_and_serves_alike_every_time(name: str) -> None:
    nodes, gpus = (15, 8) if name.startswith("sched2") else (4, 8)
    jobs = [Job(gpus=8, occupied={0: 8}), *(Job(gpus=size) for size in (1, 2, 4, 8, 16))]
    state = cluster([Node(gpus=gpus)] * nodes, jobs)
    decisions = [load_policy(name).decide(state) for _ in range(2)]
    assert decisions[0] == decisions[1]
    assert decisions[0].allocation[0].num_gpus == 8


@pytest.mark.parametrize(("missing", "extra"), [("safetensors", "policy"), ("torch", "train")])
def test_the_error_of_a_missing_package_names_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, extra: str
) -> None:
    def weigh() -> None:
        raise ModuleNotFoundError(f"No module named '{missing}.numpy'", name=f"{missing}.numpy")

    entry = EntryPoint("heavy", "tests.heavy:Heavy", ENTRY_POINT_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: weigh)
    monkeypatch.setattr("policies.api._entry_points", lambda: EntryPoints([entry]))
    with pytest.raises(PolicyLoadError, match=rf"needs {missing}, .*headway-scheduler\[{extra}\]"):
        load_policy("heavy")


def test_pip_installs_them(tmp_path: Path) -> None:
    """A wheel has the files that build_py copies; an sdist has those that egg_info lists."""
    code = "import sys; sys.argv[1:1] = ['-q']; exec(open('setup.py').read())"
    arguments = ["egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path / "lib")]
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=True, capture_output=True, timeout=100)
    listed = next(tmp_path.glob("*.egg-info/SOURCES.txt")).read_text().splitlines()
    for name in NAMES:
        for kind in ("json", "safetensors"):
            part = f"policies/learned/pretrained/{name}.{kind}"
            assert part in listed
            assert (tmp_path / "lib" / part).read_bytes() == (ROOT / part).read_bytes()
    assert (tmp_path / "lib/policies/learned/weights/weights.py").exists()
