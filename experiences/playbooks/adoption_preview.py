"""Preview of a playbook with lessons added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.playbooks.curator import curate
from experiences.learning.playbooks.deltas import SETTLED, Curated, Delta
from experiences.learning.playbooks.items import Category, PlaybookItem
from experiences.learning.rendering import playbook_context
from experiences.lessons.stamps import stamp_faults
from experiences.models import Agent, Experience, ExperienceStatus, Playbook, PlaybookChange
from experiences.playbooks.selectors import sections_of
from experiences.playbooks.services.versions import DEFAULT_CONFIDENCE, clean, names_of, rules_of_people


@dataclass(frozen=True, slots=True)
class Adoption:
    """``before``: the items of now. ``taken``: the lessons behind ``deltas``, one for each. ``refused``: why the others
    can't be adopted. ``most``: how many items there may be; ``excess``: how many too many there would be."""

    before: list[PlaybookItem]
    curated: Curated
    taken: list[Experience]
    deltas: list[Delta]
    refused: Mapping[UUID, str]
    most: int

    @property
    def excess(self) -> int:
        return max(0, len(self.curated.sections) - self.most)

    @property
    def context(self) -> str:
        return playbook_context(self.curated.sections)


def room_of(agent: Agent, playbook: Playbook | None) -> int:
    """Number of items for which the playbook has room."""
    return max(0, evolution_settings(agent).max_sections - (playbook.section_count if playbook else 0))


def adoptable(agent: Agent) -> list[Experience]:
    """The agent's active lessons, those that add most first."""
    rows = Experience.objects.filter(agent=agent, status=ExperienceStatus.ACTIVE).select_related("agent__prompt_pack")
    return sorted(rows, key=lambda row: (-(row.effect if row.effect is not None else -1e9), row.created_at))


def adoption(agent: Agent, playbook: Playbook | None, lessons: Sequence[Experience], category: Category) -> Adoption:
    """Preview of an adoption. A lesson that says the same as an item is merged with it, as the curator does."""
    before = sections_of(playbook) if playbook else []
    refused = faults(agent, playbook, before, lessons)
    wanted = [lesson for lesson in lessons if lesson.pk not in refused]
    deltas = [
        Delta("add", DEFAULT_CONFIDENCE, category, clean(experience.summary), rationale=experience.why)
        for experience in wanted
    ]
    # Nothing is pruned for it: the person who adopts decides what goes.
    allowed = rules_of_people(agent)
    rules = replace(allowed, max_sections=len(before) + len(deltas))
    curated = curate(before, deltas, rules, names_of(playbook or Playbook()))
    judged = list(zip(wanted, deltas, curated.verdicts, strict=True))
    refused |= {one.pk: verdict.reason for one, _, verdict in judged if verdict.state not in SETTLED}
    return Adoption(before, curated, wanted, deltas, refused, allowed.max_sections)


def faults(
    agent: Agent, playbook: Playbook | None, sections: Sequence[PlaybookItem], lessons: Sequence[Experience]
) -> dict[UUID, str]:
    """Why a lesson can't be adopted, for reasons other than its text."""
    found = {pk: f"no agent receives it: {why}" for pk, why in stamp_faults(lessons).items()}
    found |= {
        pk: f"it is in the playbook already ({handle})" for pk, handle in _adopted(playbook, sections, lessons).items()
    }
    for lesson in lessons:
        if lesson.agent_id != agent.pk:
            found[lesson.pk] = "another agent learned it"
        elif lesson.status != ExperienceStatus.ACTIVE:
            found[lesson.pk] = f"it is {lesson.status}; only what was measured and kept is adopted"
    return found


def _adopted(
    playbook: Playbook | None, sections: Sequence[PlaybookItem], lessons: Sequence[Experience]
) -> dict[UUID, str]:
    """The items that came from these lessons and are still there: adopted twice they would only count twice."""
    handles = [section.id for section in sections]
    rows = PlaybookChange.objects.filter(
        playbook=playbook, experience__in=[lesson.pk for lesson in lessons], handle__in=handles
    )
    return {pk: handle for pk, handle in rows.values_list("experience", "handle") if pk}
