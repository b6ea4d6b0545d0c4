"""From a paid call to the trajectory for which it was made."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from django.urls import reverse

from experiences.models import TrajectoryRecord
from experiences.rollouts.types import RolloutKey

# What the ledger calls a rollout: job, attempt, purpose, and the rollout's own path.
ROLLOUT: Final = re.compile(r"(?:[^/]*/){2}(?P<purpose>.+)/(?P<path>\d{1,9}/\d{1,9}/\d{1,9})")


def call_pages(actor: Any, calls: Collection[tuple[UUID, str]]) -> dict[tuple[UUID, str], str]:
    """By (job, rollout) of a call, the page of its trajectory. One query. None where no trajectory is kept (yet), or
    where several arms of an evaluation have one of that number and the call does not say which."""
    places: dict[tuple[UUID, str], tuple[UUID, RolloutKey, str]] = {}
    for job, rollout in calls:
        if found := ROLLOUT.fullmatch(rollout):
            key = RolloutKey(*map(int, found["path"].split("/")))
            places[job, rollout] = job, key, found["purpose"]
    if not places:
        return {}
    asked = [Q(job_id=job, **key._asdict()) for job, key, _ in places.values()]
    rows = TrajectoryRecord.objects.visible_to(actor).filter(reduce(or_, asked))
    kept: dict[tuple[UUID, RolloutKey], list[tuple[str, str, UUID]]] = defaultdict(list)
    for job, *key, purpose, arm, pk in rows.values_list("job_id", *RolloutKey._fields, "purpose", "arm", "id"):
        kept[job, RolloutKey(*key)].append((purpose, arm, pk))
    return {
        call: reverse("experiences:trajectory", args=[pk])
        for call, (job, key, purpose) in places.items()
        if (pk := _meant(kept[job, key], purpose)) is not None
    }


def _meant(rows: list[tuple[str, str, UUID]], said: str) -> UUID | None:
    parts = said.split("/")  # "training", "evaluation/trained"
    own = [pk for purpose, arm, pk in rows if (arm or purpose) in parts]
    found = own or [pk for *_, pk in rows]
    return found[0] if len(found) == 1 else None
