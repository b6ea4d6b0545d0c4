"""Settings of budgets: where alerts go (by e-mail to the admins, as signed POSTs to an address of the organisation's),
and how fast the organisation may spend."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.alerts.webhooks import SIGNATURE, webhook_secret
from budgets.forms import SettingsForm
from budgets.selectors import alerts_visible
from budgets.services import budget_secret_renew, budget_settings_set, settings_of


@page
def settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    require(actor, "budget.edit", organization)
    form = SettingsForm.of(settings_of(organization), sent(request))
    if form.applied(budget_settings_set, actor, organization):
        messages.success(request, "Saved.")
        return redirect("budgets:settings")
    return _settings_page(request, actor, organization, {"form": form}, form.status)


@post_page
def secret(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Makes a new signing secret and shows it, in this answer only: it is in no message and no cookie."""
    organization = current_organization(actor)
    require(actor, "budget.edit", organization)
    made = budget_secret_renew(actor, organization)
    context = {"form": SettingsForm.of(made), "secret": webhook_secret(organization.id, made.secret_version)}
    response = _settings_page(request, actor, organization, context, 200)
    response["Cache-Control"] = "no-store, private"
    return response


def _settings_page(
    request: HttpRequest, actor: Actor, organization: Organization, context: dict[str, Any], status: int
) -> HttpResponse:
    alerts = alerts_visible(actor).filter(budget__organization=organization)[:10]
    return render(
        request,
        "budgets/settings.html",
        {"alerts": alerts, "row": settings_of(organization), "header": SIGNATURE, **context},
        status=status,
    )
