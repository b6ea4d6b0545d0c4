"""A page of lessons reads its own lessons, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.lessons.selectors import experiences_visible, jobs_that_taught, one_of_equals
from experiences.models import Agent, Experience
from experiences.models.lessons import KNOWN_EFFECT
from tests.factories import ExperienceFactory
from tests.performance.scale import copied, ids_of
from tests.support.plans import blocks_read

pytestmark = pytest.mark.django_db


def test_a_page_in_order_of_effect_reads_no_more_blocks_of_ten_times_as_many_lessons(agent: Agent, stella: Any) -> None:
    lesson = ExperienceFactory(agent=agent, handle="one", effect=0.5, summary="When in doubt, count.")

    def read() -> None:
        rows = one_of_equals(experiences_visible(Actor(stella))).annotate(_at=KNOWN_EFFECT)
        jobs_that_taught(list(rows.order_by("-_at", "-pk")[:51]))

    def grown(numbers: tuple[int, int]) -> int:
        copied(
            Experience,
            lesson.pk,
            numbers,
            id=ids_of("lesson"),
            handle="'g' || n",
            summary="'When there are ' || n || ' parts, count them.'",
            effect="CASE mod(n, 3) WHEN 0 THEN NULL ELSE sin(n) END",
        )
        return blocks_read(read, Experience)

    few = grown((1, 2_000))
    assert grown((2_001, 20_000)) <= 2 * few
