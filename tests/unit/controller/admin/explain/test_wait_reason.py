"""The phrase by which waiting jobs are counted depends on role and obstacle alone."""

from __future__ import annotations

import pytest

from controller.admin.explain.wait_reason import reason_of
from controller.observe.role import Obstacle, Role, Standing


@pytest.mark.parametrize("obstacle", Obstacle)
def test_every_obstacle_has_a_phrase_of_its_own(obstacle: Obstacle) -> None:
    phrase = reason_of(Standing(Role.INELIGIBLE, "waits for anything; at all", obstacle))

    assert phrase
    assert "anything" not in phrase
    others = [reason_of(Standing(Role.INELIGIBLE, "", other)) for other in Obstacle if other is not obstacle]
    assert phrase not in others


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.INELIGIBLE])
def test_the_text_for_users_does_not_count(role: Role) -> None:
    assert reason_of(Standing(role, "held by its user")) == reason_of(Standing(role))
