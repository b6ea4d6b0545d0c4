"""Writes of model servers: an endpoint whose server ``manage.py up`` starts, watches and stops."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max

from agentcore_site.audit.services import record
from agentcore_site.lib import row_scope
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.own_models import ModelSource, own_models, server_token, why_none_starts
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import DatabasePriceBook
from budgets.services import price_set
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import EndpointKind, EndpointServer, ModelEndpoint, ServerState

FIRST_PORT: Final = 8310
LOCK: Final = "model servers"


@transaction.atomic
def own_model_endpoint(actor: Actor, source: str) -> ModelEndpoint:
    """The organisation's endpoint for a model of its own. Where there is none it is made, with its server and, if the
    model has no price, with the price 0. A stopped server is started.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: there is no such model, or this site starts none; the message says what to do.
        Conflict: the site runs as many servers as it may.
    """
    organization = current_organization(actor)
    require(actor, "endpoint.edit", organization)
    model = _model(source)
    _lock()
    row = EndpointServer.objects.filter(organization=organization, source=source, endpoint__archived_at=None).first()
    if row is not None:
        if not row.wanted:
            model_server_switch(actor, row.endpoint, on=True)
        return row.endpoint
    check_room()
    with row_scope.everything():
        last = EndpointServer.objects.filter(place=settings.MODEL_SERVER_PLACE).aggregate(last=Max("port"))["last"]
    port = (last or FIRST_PORT) + 1
    _price(actor, organization, model)
    try:
        endpoint = endpoint_create(
            actor,
            name=_name(organization, model),
            kind=EndpointKind.WEIGHTS,
            base_url=f"http://127.0.0.1:{port}/v1",
            model=model.name,
            api_key=server_token(settings.DATA_DIR, organization.pk, source),
        )
    except Invalid as error:
        if "base_url" not in error.fields:
            raise
        raise _refused(
            "This site calls no servers of its own machine. Its administrator allows that with"
            " OUTBOUND_ALLOW=127.0.0.1, then starts it again."
        ) from error
    EndpointServer.objects.create(
        organization=organization, endpoint=endpoint, place=settings.MODEL_SERVER_PLACE, source=source, port=port
    )
    record(actor, "model_server.started", endpoint, after={"model": source})
    return endpoint


@transaction.atomic
def model_server_switch(actor: Actor, endpoint: ModelEndpoint, *, on: bool) -> EndpointServer:
    """Starts the server of an endpoint, also after it failed, or stops it.

    Raises:
        Missing, Forbidden: the actor may not, or the endpoint has no server.
        Conflict: the site runs as many servers as it may, or starts none; the endpoint is archived.
    """
    require(actor, "endpoint.edit", endpoint.organization_id)
    _lock()
    row = EndpointServer.objects.select_for_update(no_key=True).filter(endpoint=endpoint).first()
    if row is None:
        raise Missing(f"This site runs no model server for {endpoint.name}.")
    if on and endpoint.archived_at is not None:
        raise Conflict(f"{endpoint.name} is archived.")
    if on and (reason := why_none_starts()):
        raise Conflict(reason)
    if on and not row.wanted:
        check_room()
    row.wanted, row.state, row.reason = on, ServerState.STARTING if on else ServerState.STOPPED, ""
    row.memory = row.tokens_per_second = row.adapters = row.ready_at = None
    row.save()
    record(actor, "model_server.started" if on else "model_server.stopped", endpoint, after={"model": row.source})
    return row


def check_room() -> None:
    """Raises:
    Conflict: the site runs as many servers as its setting allows."""
    with row_scope.everything():
        count = EndpointServer.objects.filter(wanted=True).count()
    if count >= settings.MODEL_SERVERS:
        message = (
            f"This site keeps at most {settings.MODEL_SERVERS} model servers in memory, and {count} run. Stop one on"
            " the page of its endpoint, or ask the site's administrator for more (MODEL_SERVERS)."
        )
        raise Conflict(message, fields={"own_model": message})


def _model(source: str) -> ModelSource:
    if reason := why_none_starts():
        raise _refused(reason)
    known = own_models()
    if source not in known:
        raise _refused(f"There is no model {source[:60]!r} here. Known: {', '.join(known)}.")
    return known[source]


def _refused(message: str) -> Invalid:
    return Invalid(message, fields={"own_model": message})


def _price(actor: Actor, organization: Organization, model: ModelSource) -> None:
    """The site's own machine takes nothing for a call: a model without a price is free."""
    try:
        DatabasePriceBook.load(organization.pk).price(model.name)
    except UnknownPrice:
        price_set(actor, model=model.name, organization=organization, free=True)


def _name(organization: Organization, model: ModelSource) -> str:
    name = f"{model.name[:60]} (own server)"
    taken = set(
        ModelEndpoint.objects.filter(organization=organization, archived_at=None).values_list("name", flat=True)
    )
    return next(one for one in (name, *(f"{name} {n}" for n in range(2, len(taken) + 3))) if one not in taken)


def _lock() -> None:
    """Until the transaction ends no other one counts servers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [LOCK])
