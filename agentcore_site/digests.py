"""The weekly digest by mail, for people who subscribed: each Monday from 8:00 in their time zone."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q
from django.urls import reverse
from django.utils import timezone

from agentcore_site.agent_summaries import AgentSummary, agent_summaries
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.selectors import jobs_visible
from agentcore_site.lib.figures import counted
from agentcore_site.lib.money_format import money
from agentcore_site.notices.fan_out import audience_of
from agentcore_site.notices.models import NoticePreferences, SiteEvent
from agentcore_site.notices.services import week_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from experiences.models.agent_lookup import agents_visible
from experiences.playbooks.selectors import waiting_count

HOUR: Final = 8
WEEK: Final = timedelta(days=7)
MOST: Final = 50  # events that one digest lists
MOST_AGENTS: Final = 25


def digests_queue() -> int:
    """Queues due digests: one per person and week, however often it is called and by how many processes. Returns how
    many."""
    wished = NoticePreferences.objects.filter(digest=True, user__is_active=True)
    still = wished.filter(user__memberships__organization=F("organization"))  # people who left get no digest
    return sum(_queued(one) for one in still.select_related("user", "organization"))


@transaction.atomic
def _queued(row: NoticePreferences) -> bool:
    week = week_of(row.time_zone)
    here = timezone.now().astimezone(ZoneInfo(row.time_zone))
    if row.digest_week == week or (here.weekday() == 0 and here.hour < HOUR):
        return False
    # One conditional update: of several beats one is first.
    if not NoticePreferences.objects.filter(pk=row.pk).exclude(digest_week=week).update(digest_week=week):
        return False
    actor = Actor(row.user, organization_id=row.organization_id)
    subject = f"{row.organization}: the week of your agents"
    key = f"digest {row.user_id} {week}"
    return (
        mail_queue(row.organization, to=[row.user.email], subject=subject, body=digest_text(actor, row), key=key)
        is not None
    )


def digest_text(actor: Actor, row: NoticePreferences) -> str:
    """The digest's text: the person's agents, open tasks, and the events that the person chose."""
    parts = [
        f"The week of your agents at {row.organization}",
        _agents(actor),
        f"What needs a person\n{_needs(actor)}",
    ]
    if events := _events(row):
        parts.append("What happened\n" + "\n".join(f"  {event}" for event in events))
    chosen = "You chose this digest under Notifications → Notification settings."
    parts.append(f"{settings.PUBLIC_URL}{reverse('summary')}\n{chosen}")
    return "\n\n".join(parts) + "\n"


def _agents(actor: Actor) -> str:
    """Agents by name; of many, the most recently trained ones."""
    rows = agents_visible(actor)
    trained_last = rows.annotate(trained=Max("runs__job__created_at")).order_by(
        F("trained").desc(nulls_last=True), "name"
    )
    found = sorted(trained_last[:MOST_AGENTS], key=lambda one: one.name)
    parts = [_of_agent(summary) for summary in agent_summaries(found)]
    if more := rows.count() - len(found):
        parts.append(f"{counted(more, 'more agent')}: the summary has all.")
    return "\n\n".join(parts) or "There is no agent yet."


def _of_agent(one: AgentSummary) -> str:
    gain = one.gains[0].sentence if one.gains else "No gain was measured yet."
    earlier = [f"  Before that ({past.at:%-d %b %Y}): {past.sentence}" for past in one.gains[1:3]]
    price = "too few queries for a price"
    if one.per_1000_micros is not None:
        price = f"{money(one.per_1000_micros)} for 1,000 queries"
    cost = f"{money(one.spent_this_month_micros)} spent this month, {money(one.spent_micros)} in all; {price}"
    return "\n".join([one.agent.name, f"  {gain}", *earlier, f"  {cost}.", f"  {one.live}"])


def _needs(actor: Actor) -> str:
    stopped = Q(status=Status.PAUSED) | Q(status=Status.FAILED, finished_at__gt=timezone.now() - WEEK)
    jobs = jobs_visible(actor).filter(stopped).count()
    waiting = waiting_count(actor)
    lines = [
        f"  {jobs} job{'' if jobs == 1 else 's'} stopped before the end." if jobs else "",
        f"  {waiting} change{'' if waiting == 1 else 's'} of what agents learned to be reviewed." if waiting else "",
    ]
    return "\n".join(filter(None, lines)) or "  Nothing."


def _events(row: NoticePreferences) -> list[str]:
    if not row.mail_in_digest or not row.mail:
        return []
    mine = SiteEvent.objects.filter(
        organization_id=row.organization_id, type__in=row.mail, created_at__gt=timezone.now() - WEEK
    )
    audience = audience_of(row.organization_id)
    concern = [one for one in mine.order_by("created_at") if audience.wants(row.user_id, one)]
    zone = ZoneInfo(row.time_zone)
    return [f"{one.created_at.astimezone(zone):%a %H:%M}  {one.text}" for one in concern[:MOST]]
