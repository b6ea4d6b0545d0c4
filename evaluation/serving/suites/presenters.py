"""Suites as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import serializers

from agentcore_site.console.svg import HistoryPoint, Picture, history, share
from agentcore_site.jobs.models import Status
from agentcore_site.lib.money import dollars
from agentcore_site.rest.shapes import Shape
from evaluation.serving.models import Suite, SuiteKind, SuiteRun, SuiteVersion
from evaluation.serving.suites.built_in import BUILT_IN
from evaluation.serving.suites.selectors import version_get

DRAWN: Final = 60  # runs of a history

TONES: Final = {True: "good", False: "bad", None: ""}


@dataclass(frozen=True)
class ShownHistory:
    """The chart of a suite's runs, and whose each series is, in the order of their numbers."""

    picture: Picture
    series: list[tuple[int, str]]


def history_of(suite: Suite, version: SuiteVersion, runs: QuerySet[SuiteRun]) -> ShownHistory | None:
    """The last runs that have a score, of all versions; a series for each agent. None where there is none."""
    rows = list(reversed(runs.filter(score__isnull=False).order_by("-job__created_at")[:DRAWN]))
    if not rows:
        return None
    numbers = {pk: number for number, pk in enumerate(dict.fromkeys(row.agent_id for row in rows))}
    points = [
        HistoryPoint(
            row.score,
            row.low,
            row.high,
            numbers[row.agent_id],
            f"{row.subject}, version {row.version.number}: {100 * row.score:.1f} %"
            f" ({100 * row.low:.1f} to {100 * row.high:.1f})"
            + (f" of {row.judged} judged of {row.asked}" if row.judged != row.asked else ""),
            reverse("serving:suite_run", args=[row.pk]),
        )
        for row in rows
        if row.score is not None and row.low is not None and row.high is not None
    ]
    label = f"Scores of {suite.name} over {len(points)} runs"
    names = {row.agent_id: row.agent.name for row in rows}
    picture = history(points, threshold=version.parsed.threshold, label=label)
    return ShownHistory(picture, [(number % 5, names[pk]) for pk, number in numbers.items()])


def built_in_to_add(suites: Sequence[Suite]) -> list[tuple[str, str]]:
    """Suites of the program, as (name, title), that are not here as this program has them."""
    here = {one.name: one for one in suites}
    found = []
    for name, suite in BUILT_IN.items():
        own = here.get(name)
        if own is None:
            found.append((name, suite.title))
        elif own.archived_at is None and version_get(own).digest != suite.spec.digest:
            found.append((name, f"{suite.title}: its next version"))
    return found


def categories_of(run: SuiteRun) -> list[dict[str, Any]]:
    """The report's rows, each with its tone, its findings and its picture."""
    found = []
    for one in run.report.get("categories", []):
        tone, rate = TONES[one["passed"]], one["rate"]
        picture = None
        if rate is not None:
            label = f"{100 * rate:.1f} %, {100 * one['low']:.1f} to {100 * one['high']:.1f}"
            picture = share(rate, one["low"], one["high"], tone=tone, label=label)
        found.append({**one, "tone": tone, "picture": picture})
    return found


def is_safety(run: SuiteRun) -> bool:
    return run.version.suite.kind == SuiteKind.SAFETY


class SuiteOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField(help_text="benchmark or safety.")
    description = serializers.CharField()
    version = serializers.IntegerField(source="latest", help_text="The newest.")
    runs = serializers.IntegerField(help_text="Number of requested runs.")
    archived_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class SuiteRunOut(Shape):
    id = serializers.UUIDField(source="job_id")
    suite_id = serializers.UUIDField(source="version.suite_id")
    suite = serializers.CharField(source="version.suite.name", help_text="The suite's name.")
    version = serializers.IntegerField(source="version.number")
    agent_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent.slug", help_text="The agent's slug.")
    release_id = serializers.UUIDField(allow_null=True, help_text="Null: the agent as it stood.")
    digest = serializers.CharField(help_text="SHA-256 of what was played, as a release has it.")
    judge_model = serializers.CharField(help_text="Model for cases that rules can't decide; empty: no judge.")
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    status_reason = serializers.CharField(source="job.status_reason")
    progress_percent = serializers.FloatField(source="job.percent")
    score = serializers.FloatField(allow_null=True, help_text="The share of successes of the judged queries.")
    low = serializers.FloatField(allow_null=True, help_text="Of its 95 % interval.")
    high = serializers.FloatField(allow_null=True)
    asked = serializers.IntegerField(allow_null=True, help_text="Queries that were asked.")
    judged = serializers.IntegerField(allow_null=True, help_text="Queries that could be judged: the score is of these.")
    passed = serializers.BooleanField(allow_null=True, help_text="Null: no threshold, or too little was judged.")
    cost_usd = serializers.FloatField()
    tokens = serializers.IntegerField()
    created_at = serializers.DateTimeField(source="job.created_at")
    finished_at = serializers.DateTimeField(source="job.finished_at", allow_null=True)

    computed = {"cost_usd": lambda row: dollars(row.cost_micros)}
