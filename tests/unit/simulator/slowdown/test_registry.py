"""Models by name, and several of them together."""

from __future__ import annotations

import pytest

from simulator.cluster.topology import flat
from simulator.errors import SlowdownError
from simulator.slowdown.api import Resident
from simulator.slowdown.compose import Composite
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import MODELS, build

TOPOLOGY = flat([8] * 4, [2] * 4)
PROFILES = paper_profiles()


def built(*texts: str) -> list[object]:
    return list(build(texts, topology=TOPOLOGY, profiles=PROFILES))


def test_names_make_models() -> None:
    assert built("none") == []
    assert built() == []
    assert len(built(*MODELS)) == len(MODELS) == 9


def speed_of_spread(*texts: str) -> float:
    model = Composite(build(texts, topology=TOPOLOGY, profiles=PROFILES))
    model.enter(Resident(0, "vgg16", -1, 2, (0, 1), (1, 1)))
    return model.speed(0)


def test_beside_locality_the_network_counts_sharing_alone() -> None:
    locality = speed_of_spread("locality")
    assert speed_of_spread("max-min") < 1
    assert speed_of_spread("locality", "max-min") == locality
    assert speed_of_spread("locality", "max-min:reference=best") == locality * speed_of_spread("max-min")


def test_the_profile_of_unknown_models_can_be_chosen() -> None:
    model = Composite(build(["locality:default=VGG16"], topology=TOPOLOGY, profiles=PROFILES))
    model.enter(Resident(0, "", -1, 2, (0, 1), (1, 1)))
    assert model.speed(0) == speed_of_spread("locality")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("nonsense",), "no slowdown model 'nonsense'; take none, or some of gpu-links, interference, link-sharing"),
        (("none", "locality"), "none cannot be combined with"),
        (("locality", "locality"), "given twice"),
        (("max-min:speed=3",), "no option 'speed=3'; its options are default, reference, sharing"),
        (("max-min:reference",), "no option 'reference'"),
        (("max-min:reference=worst",), "'worst' is not a value for reference .*; give best or alone"),
        (("interference:cores=-1",), "'-1' is not a value for cores .*; give a number above 0"),
        (("interference:cores=nan",), "'nan'"),
        (("pair-table:single=maybe",), "yes or no"),
        (("locality:default=nobody",), "no profile is called 'nobody'"),
        (("none:a=b",), "no slowdown model 'none'"),
    ],
)
def test_unknown_models_are_reported(texts: tuple[str, ...], says: str) -> None:
    with pytest.raises(SlowdownError, match=says):
        built(*texts)


def test_without_models_jobs_have_full_speed() -> None:
    model = Composite([])
    model.enter(Resident(3, "", -1, 2, (0,), (2,)))
    assert model.speed(3) == 1.0
    assert list(model.fork().changed()) == []


def test_sharers_of_composites_in_composites_are_known_if_any_model_has_links() -> None:
    without, links = (
        Composite(build([name], topology=TOPOLOGY, profiles=PROFILES)) for name in ("locality", "max-min")
    )
    assert Composite([without]).sharers is None
    both = Composite([without, links])
    for job in range(2):
        both.enter(Resident(job, "vgg16", -1, 2, (0, 1), (1, 1)))
    assert both.sharers == {0, 1}


def test_composites_multiply_and_their_forks_go_their_own_way() -> None:
    model = Composite(build(["locality", "max-min", "interference"], topology=TOPOLOGY, profiles=PROFILES))
    for job in range(2):
        model.enter(Resident(job, "vgg16", -1, 4, (0, 1), (2, 2)))
    assert list(model.changed()) == [0, 1]
    product = 1.0
    for part in model.models:
        product *= part.factor(0)
    assert model.speed(0) == product == model.factor(0)
    twin = model.fork()
    twin.leave(1)
    assert twin.speed(0) > model.speed(0) == product
