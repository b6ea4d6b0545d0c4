"""Writes of model endpoints, and a call that shows whether one answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import Q

from agentcore_site.audit.services import archive, record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import (
    ENTER_AGAIN,
    check_row,
    check_secrets_stay,
    hold_row,
    moved,
    save_row,
    set_fields,
)
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.vault import sealed
from budgets.llm.portkey import config_text
from budgets.meter_port import UnknownPrice
from budgets.metering.database_meter import DatabaseMeter, LedgerUnavailable
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import Price
from experiences.agents.endpoint_config import PURPOSES, BadEndpoint, endpoint_value
from experiences.agents.services.agent_changes import endpoint_model_check
from experiences.agents.services.endpoint_trials import EndpointTrial, TrialPart
from experiences.models import Agent, EndpointServer, ModelEndpoint, ServerState

EDITABLE: Final = ("name", "kind", "base_url", "model", "options")
KEYS: Final = ("api_key", "gateway_key", "virtual_key", "gateway_config")
SECRETS: Final = (*KEYS, "purpose_keys")


@dataclass(frozen=True)
class EndpointTest:
    """Result of test calls. ``ok``: jobs can call the endpoint as it is saved. ``price`` is None where the model has
    none. ``parts``: the forms of calls that were tried. ``options``: all of the endpoint's options with those that
    the service needs; empty where it needs none."""

    ok: bool
    model: str
    message: str
    sample: str = ""
    latency_ms: int = 0
    cost_micros: int = 0
    price: Price | None = None
    parts: tuple[TrialPart, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    saved: bool = False
    asked: str = ""  # the model by its own name

    @property
    def refused(self) -> bool:
        """Whether jobs would be refused."""
        return (bool(self.options) and not self.saved) or any(part.refused for part in self.parts)


@transaction.atomic
def endpoint_create(actor: Actor, *, name: str, base_url: str, **values: Any) -> ModelEndpoint:
    """Makes an endpoint in the actor's organisation. ``SECRETS`` come in plain and are sealed.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the name is taken.
    """
    organization = current_organization(actor)
    require(actor, "endpoint.edit", organization)
    endpoint = ModelEndpoint(organization=organization, created_by=Actor.of(actor).user)
    _change(endpoint, {"name": name, "base_url": base_url, **values})
    record(actor, "endpoint.created", endpoint, after=_audited(endpoint))
    return endpoint


@transaction.atomic
def endpoint_update(actor: Actor, endpoint: ModelEndpoint, **values: Any) -> ModelEndpoint:
    """Changes an endpoint; what is not given stays, and a key that is given empty stays too. Of ``purpose_keys``, a
    purpose that is not named has no key of its own any more.

    An address on another host requires the key again: a stored key is never sent to another host.

    Raises:
        Missing, Forbidden, Invalid: as for ``endpoint_create``.
        Conflict: the name is taken, or a job that has not ended was planned with another model.
    """
    require(actor, "endpoint.edit", endpoint.organization_id)
    hold_row(endpoint)
    before, stored, model = _audited(endpoint), endpoint.base_url, endpoint.model
    _change(endpoint, values, stored=stored)
    if endpoint.model != model:
        endpoint_model_check(endpoint)
    record(actor, "endpoint.changed", endpoint, before=before, after=_audited(endpoint))
    return endpoint


@transaction.atomic
def endpoint_archive(actor: Actor, endpoint: ModelEndpoint) -> ModelEndpoint:
    """Hides an endpoint, forgets its keys, and stops its model server.

    Raises:
        Conflict: agents use it, for their own calls or to reflect on their attempts.
    """
    require(actor, "endpoint.edit", endpoint.organization_id)
    using = Agent.objects.filter(Q(endpoint=endpoint) | Q(reflector=endpoint), archived_at=None)
    users = list(using.values_list("name", flat=True)[:3])
    if users:
        raise Conflict(f"{', '.join(users)} use it. Give them another endpoint first.")
    EndpointServer.objects.filter(endpoint=endpoint).update(wanted=False, state=ServerState.STOPPED)
    archive(actor, endpoint, "endpoint.archived", **dict.fromkeys(KEYS, ""), purpose_keys={})
    return endpoint


def endpoint_test(
    actor: Actor,
    *,  # what is tried, and for whom
    endpoint: ModelEndpoint | None,
    model: str = "",
    organization: Any = None,
    agent_id: Any = None,
    save: bool = False,
) -> EndpointTest:
    """Calls the endpoint as a job does (plain, with tools, JSON, streamed), paid for like any other call, and says what
    came of it. Where the service refuses a parameter the call is made without it, a few times at most; ``save``
    stores the options that were found.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    home = organization or (endpoint.organization if endpoint is not None else current_organization(actor))
    require(actor, "agent.edit", home)
    if save and endpoint is not None:
        require(actor, "endpoint.edit", home)
    found = endpoint_tried(endpoint, model, home.id, agent_id)
    if save and found.options and endpoint is not None:
        endpoint_update(actor, endpoint, options=found.options)
        found = replace(found, saved=True)
    seen = {"model": found.asked or found.model, "ok": found.ok}
    record(actor, "endpoint.tested", endpoint or home, organization=home, after=seen)
    return found


def endpoint_tried(
    endpoint: ModelEndpoint | None, model: str, organization_id: Any, agent_id: Any = None, **parts: bool
) -> EndpointTest:
    """The result of a trial; ``parts`` are those of ``EndpointTrial.run``."""
    try:
        value = endpoint_value(endpoint, model)
    except BadEndpoint as error:
        return EndpointTest(False, model, str(error))
    prices = DatabasePriceBook.load(organization_id)
    try:
        price = prices.price(value.model)
    except UnknownPrice as error:
        return EndpointTest(False, value.model, str(error))

    async def tried() -> EndpointTrial:
        async with DatabaseMeter(organization_id=organization_id, agent_id=agent_id, lease=120) as meter:
            trial = EndpointTrial(value, meter, prices)
            await trial.run(**parts)
        return trial

    try:
        trial = async_to_sync(tried)()
    except LedgerUnavailable as error:
        return EndpointTest(False, value.model, str(error), price=price)
    return _result(trial, dict(endpoint.options or {}) if endpoint is not None else {}, price)


def _result(trial: EndpointTrial, options: dict[str, Any], price: Price) -> EndpointTest:
    chat, done = trial.parts[0], trial.first
    failed = [f"{part.name}: {part.message}" for part in trial.parts[1:] if not part.ok]
    message = chat.message
    if trial.found:
        message = (
            f"The service refuses calls as they are sent now. It answers with other options: {named(trial.found)}."
        )
    if failed:
        message = f"{message} {' '.join(failed)}"
    sample = "" if done is None else done.text.strip() or done.reasoning.strip() or "(it answered without a text)"
    return EndpointTest(
        ok=trial.as_it_is,
        model=trial.endpoint.model if done is None else done.model,
        message=message,
        sample=sample[:500],
        latency_ms=0 if done is None else done.latency_ms,
        cost_micros=trial.spent_micros,
        price=price,
        parts=tuple(trial.parts),
        options=options | trial.found if trial.found else {},
        asked=trial.endpoint.model,
    )


def named(options: Mapping[str, Any]) -> str:
    """Options as they are written."""
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in sorted(options.items()))


def _change(endpoint: ModelEndpoint, values: Mapping[str, Any], *, stored: str = "") -> None:
    set_fields(endpoint, values, EDITABLE, beside=SECRETS)
    given = {name: plain for name in KEYS if (plain := _key_value(name, values.get(name)))}
    for name, plain in given.items():
        setattr(endpoint, name, sealed(plain))
    if values.get("purpose_keys") is not None:
        endpoint.purpose_keys = _purpose_keys(values["purpose_keys"], endpoint, stored)
    elif endpoint.purpose_keys and moved(stored, endpoint.base_url):
        raise _bad_purpose_keys(ENTER_AGAIN)
    _one_config(endpoint, given="gateway_config" in given, named="options" in values)
    _check(endpoint, given=set(given), stored=stored)
    save_row(
        endpoint, unique="name", taken=f"There is already an endpoint called {endpoint.name!r}. Choose another name."
    )


def _key_value(name: str, value: Any) -> str:
    """A secret as it is sealed; a config may come as an object or as its JSON."""
    if name != "gateway_config" or not value or (isinstance(value, str) and not value.strip()):
        return str(value or "").strip()
    try:
        return config_text(value)
    except ValueError as error:
        raise Invalid(str(error), fields={name: str(error)}) from None


def _purpose_keys(given: Any, endpoint: ModelEndpoint, stored: str) -> dict[str, str]:
    """Sealed keys by purpose after the change; an empty one stays as it is. Raises Invalid."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given.values()):
        raise _bad_purpose_keys("purpose_keys is an object of texts by purpose.")
    if unknown := sorted(set(given) - set(PURPOSES)):
        raise _bad_purpose_keys(f"There is no purpose {unknown[0][:60]!r}. Known: {', '.join(PURPOSES)}.")
    kept = {purpose: endpoint.purpose_keys.get(purpose, "") for purpose, key in given.items() if not key.strip()}
    if missing := [purpose for purpose, key in kept.items() if not key]:
        raise _bad_purpose_keys(f"{missing[0]} has no key.")
    if kept and moved(stored, endpoint.base_url):
        raise _bad_purpose_keys(ENTER_AGAIN)
    return {purpose: kept.get(purpose) or sealed(key.strip()) for purpose, key in given.items()}


def _bad_purpose_keys(message: str) -> Invalid:
    return Invalid(message, fields={"purpose_keys": message})


def _one_config(endpoint: ModelEndpoint, *, given: bool, named: bool) -> None:
    """Portkey takes one config: a saved one that is named now takes the place of one that was written out."""
    if not (isinstance(endpoint.options, dict) and endpoint.options.get("portkey_config")):
        return
    if given:
        message = "Give a config, or name a saved one with the option portkey_config, not both."
        raise Invalid(message, fields={"gateway_config": message})
    if named:
        endpoint.gateway_config = ""


def _check(endpoint: ModelEndpoint, *, given: set[str], stored: str) -> None:
    check_row(endpoint, exclude=["organization", "created_by"])
    try:
        endpoint_value(endpoint, endpoint.model or "any")
    except BadEndpoint as error:
        raise Invalid(str(error), fields={error.field: str(error)}) from error
    check_address("base_url", endpoint.base_url, before=stored)
    check_secrets_stay(endpoint, KEYS, given=given, before=stored, after=endpoint.base_url)


def _audited(endpoint: ModelEndpoint) -> dict[str, Any]:
    """For the audit log: everything but the keys."""
    return (
        {name: getattr(endpoint, name) for name in EDITABLE}
        | {f"has_{name}": bool(getattr(endpoint, name)) for name in KEYS}
        | {"purpose_keys": sorted(endpoint.purpose_keys)}
    )
