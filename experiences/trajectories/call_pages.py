"""From a paid call to the trajectory for which it was made."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Final
from uuid import UUID

from django.db.models import Q
from django.urls import reverse

from agentcore_site.tenancy.actors import Actor
from experiences.models import TrajectoryRecord
from experiences.rollouts.types import RolloutKey

# What the ledger calls a rollout: job, attempt, purpose, and the rollout's own path.
ROLLOUT: Final = re.compile(r"(?:[^/]*/){2}(?P<purpose>.+)/(?P<path>\d{1,9}/\d{1,9}/\d{1,9})")


def call_pages(actor: Actor, calls: Collection[tuple[UUID, str]]) -> dict[tuple[UUID, str], str]:
    """By (job, rollout) of a call, the page of its trajectory. One query. None where no trajectory is kept (yet), or
    where several (arms of an evaluation, looks at the selection queries) have one of that number and the call does not
    say which."""
    places: dict[tuple[UUID, str], tuple[UUID, RolloutKey, str]] = {}
    for job, rollout in calls:
        if found := ROLLOUT.fullmatch(rollout):
            key = RolloutKey(*map(int, found["path"].split("/")))
            places[job, rollout] = job, key, found["purpose"]
    if not places:
        return {}
    asked = [Q(job_id=job, **key._asdict()) for job, key, _ in places.values()]
    rows = TrajectoryRecord.objects.visible_to(actor).filter(reduce(or_, asked))
    kept: dict[tuple[UUID, RolloutKey], list[tuple[Collection[str], UUID]]] = defaultdict(list)
    for job, *key, purpose, arm, line, pk in rows.values_list(
        "job_id", *RolloutKey._fields, "purpose", "arm", "line", "id"
    ):
        kept[job, RolloutKey(*key)].append(((arm or purpose, line, f"{purpose}.{line}"), pk))
    return {
        call: reverse("experiences:trajectory", args=[pk])
        for call, (job, key, purpose) in places.items()
        if (pk := _meant(kept[job, key], purpose)) is not None
    }


def _meant(rows: list[tuple[Collection[str], UUID]], call_name: str) -> UUID | None:
    """The one row of whose names the call says most: "training", "selection.12", "evaluation/trained/held_out/0"."""
    parts = call_name.split("/")
    fits = [(sum(name in parts for name in names), pk) for names, pk in rows]
    most = max((n for n, _ in fits), default=0)
    found = [pk for n, pk in fits if n == most]
    return found[0] if len(found) == 1 else None
