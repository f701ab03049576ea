"""The model card: read back as written, and refused whenever it is not one."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import WeightsError
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, digest, draft, settings_of
from tests.unit.policies.learned.examples.cards import card

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=8)


@given(
    recipe=st.dictionaries(texts, numbers | texts | st.booleans()),
    results=st.dictionaries(texts, numbers),
    shapes=st.lists(texts).map(tuple),
    seed=st.integers(0, 2**70),
)
def test_is_read_back_as_it_was_written(
    recipe: dict[str, Any], results: dict[str, float], shapes: tuple[str, ...], seed: int
) -> None:
    written = replace(card(), recipe=recipe, results=results, shapes=shapes, seed=seed)
    assert ModelCard.from_json(written.to_json(), "here") == written


@pytest.mark.parametrize(
    ("key", "value", "reported"),
    [
        ("format", 2, "a card of format 2, this Headway reads 1"),
        ("format", "1", "a card of format '1'"),
        ("format", True, "format is True"),
        ("system", "", "system is '', not a text that is not empty"),
        ("system", 3, "system is 3"),
        ("recipe", {"lr": None}, "recipe is {'lr': None}, not a table of numbers and texts"),
        ("recipe", [], "recipe is ()"),
        ("seed", -1, "seed is -1, not a whole number"),
        ("seed", 1.5, "seed is 1.5"),
        ("seed", True, "seed is True"),
        ("encoder", "contention", "encoder is 'contention', not name/version"),
        ("encoder", "../1", "encoder is '../1'"),
        ("shapes", "4x8", "shapes is '4x8', not a list of texts"),
        ("shapes", [4], "shapes is (4,)"),
        ("data", None, "data is None"),
        ("data_sha256", "abc", "data_sha256 is 'abc', not 64 hexadecimal digits"),
        ("versions", {"torch": 2}, "versions is {'torch': 2}"),
        ("results", {"jct": "1"}, "results is {'jct': '1'}, not a table of finite numbers"),
        ("results", {"jct": 1e999}, "is not a number"),
        ("results", {"jct": 10**400}, "not a table of finite numbers"),
        ("recipe", {"usual_h": 10**400}, "not a table of numbers and texts"),
        ("weights_sha256", "F" * 64, "weights_sha256 is"),
        ("parameters", 1.0, "parameters is 1.0"),
    ],
)
def test_entry_that_is_not_what_it_must_be_is_refused(key: str, value: object, reported: str) -> None:
    values = json.loads(card().to_json()) | {key: value}
    with pytest.raises(WeightsError) as refused:
        ModelCard.from_json(json.dumps(values), "a/b.json")
    assert str(refused.value).startswith("a/b.json: ")
    assert reported in str(refused.value)


def test_missing_and_unknown_keys_are_refused_by_name() -> None:
    values = json.loads(card().to_json())
    with pytest.raises(WeightsError, match=r"x\.json: licence: there is no such key; train again"):
        ModelCard.from_json(json.dumps(values | {"licence": "?"}), "x.json")
    del values["seed"]
    with pytest.raises(WeightsError, match=r"x\.json: seed: missing; train again"):
        ModelCard.from_json(json.dumps(values), "x.json")


@pytest.mark.parametrize("text", ["", "[]", "1", "{", '{"format": 1, "format": 1}', '{"format": NaN}', "[" * 100_000])
def test_a_file_that_is_not_a_card_is_refused(text: str) -> None:
    with pytest.raises(WeightsError, match=r"^x\.json: "):
        ModelCard.from_json(text, "x.json")


def test_card_cannot_be_made_of_what_cannot_be_read_back() -> None:
    with pytest.raises(WeightsError, match="results is"):
        replace(card(), results={"jct_s": float("nan")})


def test_recipe_becomes_numbers_and_texts() -> None:
    @dataclass
    class Recipe:
        rate: float = 0.1
        layers: tuple[int, ...] = (64, 32)
        limit: int | None = None
        masked: bool = True

    assert settings_of(Recipe()) == {"rate": 0.1, "layers": "64, 32", "limit": "none", "masked": True}
    assert settings_of({"rate": 1}) == {"rate": 1}
    with pytest.raises(TypeError, match="recipe field net is a dict"):
        settings_of({"net": {}})
    with pytest.raises(TypeError, match="a dataclass or a mapping"):
        settings_of(3)


def test_a_card_names_the_cluster_and_the_data() -> None:
    made = draft(
        system="toy", recipe={}, seed=1, encoder="toy/1", shapes=["4x8"], data="nothing", data_sha256=digest(b"")
    )
    assert made.versions.keys() - {"commit"} == {"headway", "python", "torch"}
    assert made.shapes == ("4x8",)
    assert made.weights_sha256 == ""


def test_the_digest_depends_on_where_one_part_ends(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab")
    assert digest(tmp_path / "a") == digest(b"ab") == hashlib.sha256(b"ab").hexdigest()
    assert len({digest(b"ab", b"c"), digest(b"a", b"bc"), digest(b"abc"), digest(b"c", b"ab")}) == 4


def test_shipped_weights_of_trainings_that_were_ended_early_say_so() -> None:
    for name, done in {"sched2": (20, 70), "sched2-features": (30, 44)}.items():
        file = weights.pretrained() / f"{name}.json"
        found = ModelCard.from_json(file.read_text(encoding="utf-8"), name)
        assert [found.results["round"], found.results["last_round"]] == [*done]
        assert done[1] < int(found.recipe["rounds"])


def test_the_commit_in_a_shipped_card_is_one() -> None:
    for file in weights.pretrained().glob("*.json"):
        commit = ModelCard.from_json(file.read_text(encoding="utf-8"), file.name).versions.get("commit", "0" * 40)
        assert re.fullmatch(r"[0-9a-f]{40}", commit), file.name
