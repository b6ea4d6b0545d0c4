"""Search by text: pages and actions of the console, and rows of the person's organisation by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q
from django.urls import reverse

from agentcore_site.console.menu import ACTIONS, ADMINISTRATION, LABELS, PLACES
from agentcore_site.console.pages import first_of
from agentcore_site.console.saved import views_visible
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from evaluation.selectors import evaluations_visible
from evaluation.serving.suites.selectors import suites_visible
from experiences.agents.selectors import datasets_visible, endpoints_visible
from experiences.lessons.selectors import experiences_visible, packs_visible
from experiences.models.agent_lookup import agents_visible
from experiences.playbooks.selectors import playbooks_visible
from training.selectors.runs import runs_visible, searched

SHOWN: Final = 6  # of each kind


@dataclass(frozen=True, slots=True)
class Hit:
    """``job``: of a hit that is a job, whose status is shown."""

    title: str
    under: str
    url: str
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class HitGroup:
    title: str
    hits: list[Hit]


def places_found(query: str, may: Collection[str], *, staff: bool) -> list[HitGroup]:
    """Pages and actions whose name contains every word, the nearest names first; all of them for an empty query."""
    words = query.casefold().split()
    groups = (("Do", ACTIONS), ("Go to", (*PLACES, *ADMINISTRATION)))
    found = [
        HitGroup(
            title,
            [
                Hit(entry.label, "", reverse(entry.url_name))
                for entry in entries
                if entry.is_shown(may, staff=staff) and all(word in entry.label.casefold() for word in words)
            ],
        )
        for title, entries in groups
    ]
    if not words:
        return [group for group in found if group.hits]
    near = [HitGroup(one.title, sorted(one.hits, key=lambda hit: _far(hit, query))) for one in found if one.hits]
    return sorted(near, key=lambda group: _far(group.hits[0], query))


def _far(hit: Hit, query: str) -> int:
    """Distance of a name: the typed text itself (0), begins with it (1), or contains it elsewhere (2)."""
    name, typed = hit.title.casefold(), query.strip().casefold()
    return 0 if name == typed else 1 if name.startswith(typed) else 2


def things_found(actor: Actor, query: str) -> list[HitGroup]:
    """Rows of the actor's organisation by name, identifier or handle, at most six of a kind."""
    if not query:
        return []
    found = (HitGroup(title, list(find(actor, query))) for title, find in KINDS)
    return [group for group in found if group.hits]


def _named(query: str, *fields: str) -> Q:
    wanted = Q()
    for field in fields:
        wanted |= Q(**{f"{field}__icontains": query})
    return wanted


def _agents(actor: Actor, query: str) -> Iterable[Hit]:
    for agent in agents_visible(actor).filter(_named(query, "name", "slug")).order_by("name")[:SHOWN]:
        yield Hit(agent.name, agent.description or agent.slug, reverse("agent", args=[agent.pk]))


def _runs(actor: Actor, query: str) -> Iterable[Hit]:
    for one in first_of(searched(runs_visible(actor), query).order_by("-job__created_at"), SHOWN):
        under = f"{one.agent.name} · {str(one.pk)[-6:]}"
        yield Hit(one.job.title, under, reverse("training:job", args=[one.pk]), one.job)


def _evaluations(actor: Actor, query: str) -> Iterable[Hit]:
    for one in first_of(searched(evaluations_visible(actor), query).order_by("-job__created_at"), SHOWN):
        under = f"{one.checkpoint.label} · {str(one.pk)[-6:]}"
        yield Hit(one.job.title, under, reverse("evaluation:report", args=[one.pk]), one.job)


def _datasets(actor: Actor, query: str) -> Iterable[Hit]:
    rows = datasets_visible(actor).filter(_named(query, "name", "domain"), archived_at=None)
    for row in rows.order_by("-created_at")[:SHOWN]:
        under = f"version {row.version} · {row.size:,} queries"
        yield Hit(row.name, under, reverse("training:dataset", args=[row.pk]))


def _lessons(actor: Actor, query: str) -> Iterable[Hit]:
    rows = experiences_visible(actor).filter(_named(query, "handle", "summary"))
    for row in rows.order_by("-created_at")[:SHOWN]:
        yield Hit(row.handle, row.summary[:120], reverse("experiences:experience", args=[row.pk]))


def _playbooks(actor: Actor, query: str) -> Iterable[Hit]:
    rows = playbooks_visible(actor).filter(_named(query, "agent__name", "agent__slug"))
    for row in rows.select_related("agent").order_by("agent__name")[:SHOWN]:
        yield Hit(f"Playbook of {row.agent.name}", "", reverse("experiences:playbook", args=[row.agent_id]))


def _suites(actor: Actor, query: str) -> Iterable[Hit]:
    for suite in suites_visible(actor).filter(_named(query, "name", "description")).order_by("name")[:SHOWN]:
        yield Hit(suite.name, suite.description, reverse("serving:suite", args=[suite.pk]))


def _packs(actor: Actor, query: str) -> Iterable[Hit]:
    for pack in packs_visible(actor).filter(_named(query, "name", "domain")).order_by("name")[:SHOWN]:
        yield Hit(pack.name, pack.domain, reverse("experiences:prompt_pack", args=[pack.pk]))


def _endpoints(actor: Actor, query: str) -> Iterable[Hit]:
    if not actor.may_somewhere("data.view"):
        return
    for endpoint in endpoints_visible(actor).filter(_named(query, "name", "model")).order_by("name")[:SHOWN]:
        # People who may not change an endpoint see it in the list.
        may = actor.may("endpoint.edit", endpoint.organization_id)
        url = reverse("experiences:endpoint_edit", args=[endpoint.pk]) if may else reverse("experiences:endpoints")
        yield Hit(endpoint.name, endpoint.model, url)


def _views(actor: Actor, query: str) -> Iterable[Hit]:
    rows = views_visible(actor).filter(_named(query, "name"), page__in=LABELS).select_related("person")
    for view in rows.order_by("name")[:SHOWN]:
        shared = "" if view.person_id == actor.user.pk else f", shared by {view.person.username}"
        yield Hit(view.name, f"{LABELS[view.page]}{shared}", view.address)


KINDS: Final[tuple[tuple[str, Callable[[Any, str], Iterable[Hit]]], ...]] = (
    ("Agents", _agents),
    ("Jobs", _runs),
    ("Evaluations", _evaluations),
    ("Datasets", _datasets),
    ("Lessons", _lessons),
    ("Playbooks", _playbooks),
    ("Suites", _suites),
    ("Prompt packs", _packs),
    ("Model endpoints", _endpoints),
    ("Saved views", _views),
)
