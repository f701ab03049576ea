"""Replacements that put a defect back can be called as the present code: otherwise each call is a TypeError, and no defect."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.campaign.verdict.defects.catalogue import DEFECTS
from tests.campaign.verdict.defects.patches import OtherSignatureError, patched
from tests.campaign.verdict.test_defects import CASES


class Code:
    def plain(self, jobs: list[str], limit_s: float = 1.0) -> None:
        """Do nothing."""

    async def waits(self, *, stay: bool) -> None:
        """Do nothing."""

    @property
    def held(self) -> bool:
        return True


@pytest.mark.parametrize("name", DEFECTS)
def test_every_defect_replaces_functions_by_functions_of_the_same_parameters(name: str) -> None:
    with DEFECTS[name]():
        pass


@pytest.mark.parametrize("name", CASES)
def test_so_do_the_defects_of_tests(name: str) -> None:
    defect, _ = CASES[name]
    with defect():
        pass


@pytest.mark.parametrize(
    ("attribute", "new"),
    [
        ("plain", lambda self, jobs: None),
        ("plain", lambda self, jobs, limit_s: None),
        ("plain", lambda self, jobs, **how: None),
        ("plain", None),
        ("waits", lambda self, *, stay: None),
        ("held", lambda self: True),
    ],
)
def test_other_parameters_are_refused(attribute: str, new: object) -> None:
    with pytest.raises(OtherSignatureError, match=attribute), patched(patch.object(Code, attribute, new)):
        pass


def test_a_patch_of_the_same_parameters_is_applied_and_ends() -> None:
    async def waits(self: Code, *, stay: bool) -> None:
        """Do nothing."""

    before = Code.waits
    with patched(patch.object(Code, "waits", waits), patch.object(Code, "held", property(lambda self: False))):
        assert Code.waits is waits
        assert not Code().held
    assert Code.waits is before
