"""The state of the site itself, for people who run it: what it depends on, and every process of every host."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db.models import Case, CharField, F, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site import health
from agentcore_site.console.pages import Sort, listing, matching, page, query_params
from agentcore_site.embedded.reporting import SECONDS
from agentcore_site.embedded.supervisor import HUNG_SECONDS
from agentcore_site.jobs.models import HostProcess
from agentcore_site.lib.errors import Forbidden
from agentcore_site.tenancy.actors import Actor

SORTS: Final = (
    Sort("host", "by host", "host", descending=False),
    Sort("name", "by process", "name", descending=False),
    Sort("seen", "longest silent first", "seen_at", descending=False),
    Sort("restarts", "most restarts first", "restarts"),
)
STATES: Final = ("running", "down", "hangs", "silent")
GOOD, DOUBTFUL, BAD = "completed", "paused", "failed"  # as the statuses of jobs look
TONES: Final = {
    health.OK: GOOD, health.DEGRADED: DOUBTFUL, health.DOWN: BAD,
    "running": GOOD, "silent": DOUBTFUL, "hangs": BAD,
}  # fmt: skip


@page
def system(request: HttpRequest, actor: Actor) -> HttpResponse:
    if not actor.runs_site:
        raise Forbidden("This page is for administrators of the site.")
    everything = processes()
    query, state = query_params(request, "q", "state")
    rows = matching(everything.filter(state=state) if state in STATES else everything, query, "host", "name", "place")
    found = listing(request, rows, SORTS, one="process", of=everything)
    context = {
        "listing": found,
        "state": state,
        "states": STATES,
        "dependencies": found_of_each(),
        "tones": TONES,
    }
    return render(request, "agentcore_site/system.html", context)


def found_of_each() -> list[tuple[str, dict[str, Any]]]:
    """Each dependency by its name in words, and what was found of it."""
    titles = {"nats": "NATS"}
    return [(titles.get(name, name.capitalize()), found) for name, found in health.board().found().items()]


def processes() -> QuerySet[Any]:
    """Processes with their ``state``. silent: its host reported nothing for a while, so its state is not known; hangs:
    it runs, and its loop has not turned for so long that it is about to be replaced."""
    silent = Q(seen_at__lt=Now() - timedelta(seconds=4 * SECONDS))
    hangs = Q(ticked_at__lt=F("seen_at") - timedelta(seconds=HUNG_SECONDS / 2))
    state = Case(
        When(silent, then=Value("silent")),
        When(pid=0, then=Value("down")),
        When(hangs, then=Value("hangs")),
        default=Value("running"),
        output_field=CharField(),
    )
    return HostProcess.objects.annotate(state=state)
