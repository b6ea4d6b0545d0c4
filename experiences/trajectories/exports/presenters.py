"""Exports as pages show them: what was asked for in words, with the names of jobs and agents."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db.models import Q
from rest_framework import serializers

from agentcore_site.jobs.models import Job
from agentcore_site.lib.figures import spelled
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryExport
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.filters import OUTCOMES

FLAGS: Final = {("success", "true"): "succeeded", ("success", "false"): "failed"}


class FilterShown(NamedTuple):
    """A filter: what it is called, and its value with the name of the job or agent that it names."""

    title: str
    value: str


class ExportShown(NamedTuple):
    row: TrajectoryExport
    title: str


def filters_shown(actor: Actor, several: Sequence[Mapping[str, Any]]) -> list[list[FilterShown]]:
    """Filters of several exports, always in two queries. A job or agent that the actor may not see keeps its
    identifier."""
    names = _names(actor, [str(one[name]) for one in several for name in ("job", "agent") if one.get(name)])
    return [[_filter(name, str(value), names) for name, value in one.items()] for one in several]


def exports_shown(actor: Actor, rows: Iterable[TrajectoryExport]) -> list[ExportShown]:
    found = [*rows]
    asked = filters_shown(actor, [one.filters for one in found])
    return [
        ExportShown(row, f"{FORMATS[row.format].title}: {', '.join(map(_phrase, filters)) or 'all trajectories'}")
        for row, filters in zip(found, asked, strict=True)
    ]


def _phrase(one: FilterShown) -> str:
    return one.value if one.title in ("job", "outcome") else f"{one.title} {one.value}"


def _filter(name: str, value: str, names: Mapping[str, str]) -> FilterShown:
    if (name, value.lower()) in FLAGS:
        return FilterShown("outcome", FLAGS[name, value.lower()])
    if name == "outcome":
        return FilterShown(name, OUTCOMES[value][0] if value in OUTCOMES else value)
    return FilterShown(spelled(name), names.get(value, value))


def _names(actor: Actor, given: Sequence[str]) -> dict[str, str]:
    ids = [one for one in given if uuid_of(one)]
    found = {str(pk): f"{title} ({str(pk)[-6:]})" for pk, title in _jobs(actor, ids)}
    for pk, slug, name in (
        Agent.objects.visible_to(actor).filter(Q(pk__in=ids) | Q(slug__in=given)).values_list("pk", "slug", "name")
        if given
        else ()
    ):
        found |= {str(pk): name, slug: name}
    return found


def _jobs(actor: Actor, ids: Sequence[str]) -> Iterable[tuple[uuid.UUID, str]]:
    return Job.objects.visible_to(actor).filter(pk__in=ids).values_list("pk", "title") if ids else ()


class ExportJobOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="pk", help_text="Also that of its job.")
    format = serializers.CharField()
    filters = serializers.DictField()
    status = serializers.CharField(source="job.status")
    error = serializers.CharField(source="job.error")
    progress = serializers.FloatField(source="job.progress", help_text="From 0 to 1.")
    trajectories = serializers.IntegerField(source="read", help_text="That were read.")
    rows = serializers.IntegerField(help_text="Of the file.")
    size_bytes = serializers.IntegerField(source="size")
    created_at = serializers.DateTimeField(source="job.created_at")
    finished_at = serializers.DateTimeField(source="job.finished_at", allow_null=True)
    kept_until = serializers.DateTimeField(allow_null=True, help_text="Null: there is no file, or it is kept for ever.")
    deleted_at = serializers.DateTimeField(allow_null=True)
