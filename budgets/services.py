"""Writes of limits, prices and where alerts go. Balances are the ledger's alone (``budgets.ledger``)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Model

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.money_format import exact, money
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization, organization_id_of
from agentcore_site.tenancy.permissions import require
from budgets.ledger.accounts import (
    BudgetOwner,
    budget_open,
    budgets_of,
    limit_standing_micros,
    month_of,
    month_over,
    owner_lock,
    playground_owner,
)
from budgets.ledger.posting import THRESHOLDS, Alert, Balance, alerts_raise, lock, post
from budgets.ledger.values import MOST_MICROS
from budgets.models import Budget, BudgetLimit, BudgetSettings, ModelPrice, Scope
from budgets.presenters.naming import agent_is_of
from budgets.pricing import HIGHEST, KINDS, MOST_TIERS

# Attributes by their names in the audit log.
SETTINGS = {
    "email_admins": "email_admins",
    "webhook_url": "webhook_url",
    "secret_version": "secret_version",
    "most_per_minute": "most_per_minute_micros",
}
PRICED = {
    "input": "input_micros",
    "cached_input": "cached_input_micros",
    "output": "output_micros",
    "per_call": "per_call_micros",
    "rates": "rates",
    "tiers": "tiers",
    "free": "free",
    "source": "source",
}


@dataclass(frozen=True, slots=True)
class ShownLimit:
    """The limit that a person saw before they changed it, in micro-dollars; None: not limited."""

    limit_micros: int | None


def budget_set_limit(
    actor: Actor,
    *,
    organization: Organization | uuid.UUID,
    limit_micros: int | None,
    agent_id: uuid.UUID | None = None,
    job: Job | None = None,
    note: str = "",
) -> Budget:
    """Sets the standing limit of an organisation, one of its agents or one of its jobs, from now on.

    ``limit_micros`` None: not limited. The running period gets the limit at once, and debt is paid from the room that
    the limit makes. Returns the running period's budget.

    Raises:
        Missing, Forbidden: the actor may not edit budgets there, or there is no such agent or job in it.
        Invalid: the limit is negative, or below what is spent and held already.
    """
    organization_id = organization_id_of(organization)
    require(actor, "budget.edit", organization_id)
    return limit_change(actor, limit_owner(organization_id, agent_id=agent_id, job=job), limit_micros, note=note)


def playground_set_limit(
    actor: Actor, *, organization: Organization | uuid.UUID, limit_micros: int | None, note: str = ""
) -> Budget:
    """Sets the standing monthly limit of an organisation's playground, as ``budget_set_limit`` does of others.

    Raises:
        Missing, Forbidden, Invalid: as ``budget_set_limit``.
    """
    organization_id = organization_id_of(organization)
    require(actor, "budget.edit", organization_id)
    return limit_change(actor, playground_owner(organization_id), limit_micros, note=note)


def budget_change_limit(
    actor: Actor, budget: Budget, limit_micros: int | None, *, note: str = "", shown: ShownLimit | None = None
) -> Budget:
    """Sets the standing limit of a budget's owner, from now on. ``shown``: only if it is still the one that was shown.

    Raises:
        Conflict: the budget's month is over, or the limit was changed meanwhile.
        Missing, Forbidden, Invalid: as ``budget_set_limit``.
    """
    require(actor, "budget.edit", budget.organization_id)
    return limit_change(actor, owner_of(budget), limit_micros, note=note, shown=shown)


def limit_owner(
    organization_id: uuid.UUID, *, agent_id: uuid.UUID | None = None, job: Job | None = None
) -> BudgetOwner:
    """The owner of the limit: the job, else the agent, else the organisation.

    Raises:
        Missing: the agent or job is not there or another organisation's. A limit without an owner would stop nothing.
    """
    if job is not None:
        if job.organization_id != organization_id:
            raise Missing("There is no such job.")
        return BudgetOwner(organization_id, Scope.JOB, job.id, agent_id)
    if agent_id is None:
        return BudgetOwner(organization_id, Scope.ORGANIZATION, organization_id)
    if not agent_is_of(organization_id, agent_id):
        raise Missing("There is no such agent in this organisation. Choose one of its agents.")
    return BudgetOwner(organization_id, Scope.AGENT, agent_id, agent_id)


def owner_of(budget: Budget) -> BudgetOwner:
    """The owner of a budget.

    Raises:
        Conflict: its month is over, and its owner's limit is another month's matter.
    """
    if month_over(budget):
        raise Conflict(f"{budget.period_start:%B %Y} is over. Set the limit of the running month instead.")
    return BudgetOwner(budget.organization_id, Scope(budget.scope), budget.owner_id, budget.agent_id)


def budget_open_job(
    actor: Actor | None, job: Job, *, agent_id: uuid.UUID | None, limit_micros: int | None, note: str = ""
) -> Budget:
    """The budget that a job starts with, set by the person who starts it. In the transaction that makes the job, which
    checks who may start one."""
    owner = BudgetOwner(job.organization_id, Scope.JOB, job.id, agent_id)
    return limit_change(actor, owner, limit_micros, note=note or "set at the start")


@transaction.atomic
def limit_change(
    actor: Actor | None,
    owner: BudgetOwner,
    limit_micros: int | None,
    *,
    note: str = "",
    shown: ShownLimit | None = None,
) -> Budget:
    """Writes a limit with its history and its audit event. Who may is asked by the callers.

    Raises:
        Conflict: the limit is not the one that was ``shown`` any more.
        Invalid: the limit is negative, beyond reason, or below what is spent and held already.
    """
    if limit_micros is not None and not 0 <= limit_micros <= MOST_MICROS:
        raise _wrong(f"A limit is between $0 and {money(MOST_MICROS)}.")
    # 1. The owner's turn: no row of theirs is opened meanwhile, so that the next month can't begin with the old limit.
    owner_lock(owner.id)
    before_micros, month = limit_standing_micros(owner), month_of()
    budget_id = budget_open(owner, month)
    rows = budgets_of(owner).filter(period_start__gte=owner.start(month))
    with connection.cursor() as cursor:
        # 2. The balances' locks: nothing is reserved between the comparison and the change.
        balances = lock(cursor, list(rows.values_list("id", flat=True)))
        if shown is not None and balances[budget_id].limit_micros != shown.limit_micros:
            raise _moved(balances[budget_id].limit_micros)
        for balance in balances.values():
            _fits(balance, limit_micros)
        name = Actor.of(actor).name if actor is not None else "system"
        BudgetLimit.objects.create(
            organization_id=owner.organization_id,
            scope=owner.scope,
            owner_id=owner.id,
            before_micros=before_micros,
            limit_micros=limit_micros,
            changed_by_id=getattr(Actor.of(actor).user, "pk", None),
            actor=name[:150],
            note=note[:200],
        )
        rows.update(limit_micros=limit_micros)
        # 3. Debt takes the room first; one alert says which share of the new limit is spent already.
        for balance in balances.values():
            balance.limit_micros = limit_micros
        post(cursor, balances, [])
        alerts_raise(cursor, [Alert(one, max(_reached(one))) for one in balances.values() if _reached(one)])
    budget = Budget.objects.get(id=budget_id)
    record(
        actor,
        "budget.changed",
        budget,
        before={"limit": before_micros},
        after={"limit": limit_micros, "note": note[:200]},
    )
    return budget


def price_set(
    actor: Actor,
    *,  # the fields of the row
    model: str,
    organization: Organization | None = None,
    valid_from: date | None = None,
    input_micros: int = 0,
    output_micros: int = 0,
    cached_input_micros: int | None = None,
    per_call_micros: int = 0,
    rates: dict[str, int] | None = None,
    tiers: list[dict[str, Any]] | None = None,
    free: bool = False,
    source: str = "",
) -> ModelPrice:
    """Sets what a model costs from a day on (from today), for an organisation or, by a superuser, for all.

    Prices are micro-dollars per million tokens. Another day is another row; the same day corrects its row, and the
    audit log keeps what it was. ``rates`` of other kinds of tokens and ``tiers`` by the length of the prompt (as
    ``ModelPrice`` keeps them) stay as they are in force where they are None.

    Raises:
        Missing, Forbidden: the actor may not edit prices there.
        Invalid: a price is negative, or all is zero and the model is not declared free.
    """
    require_price_editor(actor, organization)
    day = valid_from or datetime.now(UTC).date()
    row = ModelPrice.objects.filter(organization=organization, model=model.strip(), valid_from=day).first()
    row = row or ModelPrice(organization=organization, model=model.strip(), valid_from=day)
    before = priced(row) if row.pk else None
    row.input_micros, row.cached_input_micros, row.output_micros = input_micros, cached_input_micros, output_micros
    row.per_call_micros, row.free, row.source = per_call_micros, free, source[:200]
    in_force = _in_force(row)
    row.rates = {} if free else in_force.rates if rates is None else rates
    row.tiers = [] if free else in_force.tiers if tiers is None else tiers
    price_save(actor, row, before=before)
    return row


def _in_force(row: ModelPrice) -> ModelPrice:
    """The price that a new one follows: the organisation's own, else that for all; itself where there is none."""
    rows = ModelPrice.objects.filter(model=row.model, valid_from__lte=row.valid_from)
    own = rows.filter(organization=row.organization).order_by("-valid_from").first()
    return own or rows.filter(organization=None).order_by("-valid_from").first() or row


def price_fault(row: ModelPrice) -> str:
    """The fault of a price's rates and tiers, as a sentence; "" without one."""
    try:
        price = row.value()
    except (TypeError, KeyError, ValueError) as error:
        return f"Its rates or tiers are not as price files have them ({error})."
    starts = [tier.above_tokens for tier in price.tiers]
    if len(set(starts)) < len(starts) or 0 in starts or len(starts) > MOST_TIERS:
        return f"At most {MOST_TIERS} tiers, each above another number of tokens from 1."
    amounts = [getattr(tier.rates, kind) or 0 for tier in price.steps for kind in KINDS]
    if max(amounts) > HIGHEST:
        return "A price is beyond reason."
    return ""


def priced(row: ModelPrice) -> dict[str, Any]:
    """The price as the audit log has it."""
    return _named(row, PRICED)


def _named(row: Model, attributes: Mapping[str, str]) -> dict[str, Any]:
    return {name: getattr(row, attribute) for name, attribute in attributes.items()}


@transaction.atomic
def price_save(actor: Actor, row: ModelPrice, *, before: dict[str, Any] | None) -> None:
    """Checks and stores a price with its audit event. ``before``: its priced fields, None for a new one."""
    require_price_editor(actor, row.organization)
    if not (row.free or row.input_micros or row.output_micros or row.cached_input_micros or row.per_call_micros):
        raise Invalid(
            f"All prices of {row.model!r} are zero. If that is meant, declare the model free.",
            fields={"free": "Declare it free, or give its prices."},
        )
    fault = price_fault(row)
    if fault:
        raise Invalid(f"The price is not right: {fault}", fields={"tiers": fault})
    try:
        row.full_clean(validate_unique=False, validate_constraints=True)
    except ValidationError as error:
        fields = {name.removesuffix("_micros"): " ".join(texts) for name, texts in error.message_dict.items()}
        raise Invalid("The price is not right: " + " ".join(fields.values()), fields=fields) from error
    row.by_hand = True
    row.save()
    record(actor, "price.changed" if before else "price.created", row, before=before, after=priced(row))


def require_price_editor(actor: Actor, organization: Organization | None) -> None:
    """Prices for all are changed by the site's operators; an organisation's own by its admins."""
    if getattr(Actor.of(actor).user, "is_superuser", False):
        return
    if organization is not None:
        require(actor, "price.edit", organization)
    else:
        raise Forbidden("Only a superuser may change the prices for all. Set one for your organisation instead.")


@transaction.atomic
def budget_settings_set(
    actor: Actor,
    organization: Organization,
    *,
    email_admins: bool = True,
    webhook_url: str = "",
    secret_version: int | None = None,
    most_per_minute_micros: int | None = None,
) -> BudgetSettings:
    """Sets where alerts go and the rate of spending; ``most_per_minute_micros`` None: not limited.

    Raises:
        Missing, Forbidden: the actor may not edit budgets there.
        Invalid: the address is malformed, or this site does not call it; the rate is not above zero, or beyond reason.
    """
    require(actor, "budget.edit", organization)
    url = webhook_url.strip()
    if len(url) > 500:
        raise Invalid("The address is too long.", fields={"webhook_url": "At most 500 characters."})
    row = settings_of(organization)
    check_address("webhook_url", url, before=row.webhook_url)
    if most_per_minute_micros is not None and not 0 < most_per_minute_micros <= MOST_MICROS:
        wrong = f"A rate is above $0 and at most {money(MOST_MICROS)}; leave it empty where nothing is limited."
        raise Invalid(wrong, fields={"most_per_minute": wrong})
    before = _named(row, SETTINGS)
    row.email_admins, row.webhook_url, row.most_per_minute_micros = email_admins, url, most_per_minute_micros
    row.secret_version = secret_version or row.secret_version
    row.save()
    after = _named(row, SETTINGS)
    record(actor, "budget.settings_changed", row, organization=organization, before=before, after=after)
    return row


def budget_secret_renew(actor: Actor, organization: Organization) -> BudgetSettings:
    """Alerts that are sent from now on are signed by another secret.

    Raises:
        Missing, Forbidden: as for ``budget_settings_set``.
    """
    row = settings_of(organization)
    return budget_settings_set(
        actor,
        organization,
        email_admins=row.email_admins,
        webhook_url=row.webhook_url,
        secret_version=row.secret_version + 1,
        most_per_minute_micros=row.most_per_minute_micros,
    )


def settings_of(organization: Organization) -> BudgetSettings:
    """The organisation's, or what holds without any; that is not stored."""
    return BudgetSettings.objects.filter(organization=organization).first() or BudgetSettings(organization=organization)


def _fits(balance: Balance, limit_micros: int | None) -> None:
    least_micros = balance.spent_micros + balance.reserved_micros
    if limit_micros is not None and least_micros > limit_micros:
        raise _wrong(
            f"{money(balance.spent_micros)} is spent and {money(balance.reserved_micros)} is on hold: the limit"
            f" can't be {exact(limit_micros)}. Choose at least {exact(least_micros)}."
        )


def _reached(balance: Balance) -> list[int]:
    spent_micros, limit_micros = balance.spent_micros + balance.debt_micros, balance.limit_micros
    return [share for share in THRESHOLDS if 100 * spent_micros >= share * limit_micros] if limit_micros else []


def _moved(limit_micros: int | None) -> Conflict:
    now = "not limited" if limit_micros is None else money(limit_micros)
    message = f"The limit was changed meanwhile: it is {now} now. Look at it, and set it again if it must differ."
    return Conflict(message, fields={"limit": message})


def _wrong(message: str) -> Invalid:
    return Invalid(message, fields={"limit": message})
