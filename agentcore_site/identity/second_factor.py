"""A person's authenticator: set up, taken off, its recovery codes, and whether an organisation asks for one.

It is asked for where passwords are looked at (``tenancy.sign_in``), so that no interface that takes one goes by it.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import pyotp
import segno
from django.db import models, transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.codes import PERIOD, code_taken, factor_of, is_required, recovery_digest
from agentcore_site.tenancy.models import Membership, Organization, Passkey, SecondFactor
from agentcore_site.tenancy.permissions import require
from agentcore_site.tenancy.sign_in import Tries
from agentcore_site.tenancy.tokens import sign_out_everywhere
from agentcore_site.vault import opened, sealed

RECOVERY_CODES: Final = 10
LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"  # none that is taken for another
ISSUER: Final = "AgentCore"
WRONG: Final = "This code is wrong, or was used already. Take the one that the authenticator shows now."


def _recovery_codes() -> list[str]:
    return ["".join(secrets.choice(LETTERS) for _ in range(10)) for _ in range(RECOVERY_CODES)]


def _grouped(codes: list[str]) -> list[str]:
    return [f"{code[:5]}-{code[5:]}" for code in codes]


# -- one's own ---------------------------------------------------------------------------------------------------------


def enrolment_of(user: Any) -> SecondFactor:
    """The authenticator that the person is setting up: the same secret until it is confirmed.

    Raises:
        Conflict: there is one already.
    """
    row, _ = SecondFactor.objects.get_or_create(user=user, defaults={"sealed": sealed(pyotp.random_base32())})
    if row.confirmed_at:
        raise Conflict("You have an authenticator already. Remove it first.")
    return row


def secret_of(row: SecondFactor) -> str:
    """The secret as it is typed where no camera is: in groups of four."""
    text = opened(row.sealed)
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def qr_code(row: SecondFactor) -> str:
    """The secret as an SVG that an authenticator reads. It goes into the page: no other address ever sees it."""
    account = row.user.get_username()
    address = pyotp.TOTP(opened(row.sealed), interval=PERIOD).provisioning_uri(name=account, issuer_name=ISSUER)
    return str(segno.make(address, error="m").svg_inline(scale=4, dark="#000", light="#fff", border=3))


@transaction.atomic
def enrolment_confirm(actor: Actor, code: str) -> list[str]:
    """The authenticator counts from now on. Returns the recovery codes, which are shown this once.

    Raises:
        Conflict: there is one already.
        Invalid: the code is not the authenticator's.
    """
    _check_person(actor)
    row = enrolment_of(actor.user)
    SecondFactor.objects.filter(pk=row.pk, confirmed_at=None).update(confirmed_at=timezone.now())
    if not code_taken(actor.user, code):
        raise Invalid(WRONG, fields={"code": WRONG})
    codes = _recovery_codes()
    SecondFactor.objects.filter(pk=row.pk).update(recovery=[recovery_digest(one) for one in codes])
    record(actor, "second_factor.added", organization=_home(actor))
    return _grouped(codes)


@transaction.atomic
def recovery_replace(actor: Actor, code: str) -> list[str]:
    """New recovery codes; the former ones open nothing any more.

    Raises:
        Missing: the person has no authenticator.
        Invalid: the code is wrong.
        TooMany: too many were.
    """
    row = _proven(actor, code)
    codes = _recovery_codes()
    SecondFactor.objects.filter(pk=row.pk).update(recovery=[recovery_digest(one) for one in codes])
    record(actor, "second_factor.recovery_replaced", organization=_home(actor))
    return _grouped(codes)


@transaction.atomic
def factor_remove(actor: Actor, code: str) -> None:
    """Takes one's own authenticator off.

    Raises:
        Missing: the person has none.
        Conflict: an organisation asks for one.
        Invalid: the code is wrong.
        TooMany: too many were.
    """
    if is_required(actor.user) and not Passkey.objects.filter(user=actor.user).exists():
        raise Conflict("Your organisation asks for a second factor. Ask an admin to remove it if you need another.")
    _proven(actor, code).delete()
    record(actor, "second_factor.removed", organization=_home(actor))


def _proven(actor: Actor, code: str) -> SecondFactor:
    _check_person(actor)
    row = factor_of(actor.user)
    if row is None:
        raise Missing("You have no authenticator.")
    tries = Tries(actor.name, actor.ip)
    tries.begin()
    if not code_taken(actor.user, code):
        raise Invalid(WRONG, fields={"code": WRONG})
    tries.succeed()
    return row


def _check_person(actor: Actor) -> None:
    if actor.scopes is not None:
        raise Forbidden("A key or a narrowed token can't change how its person signs in.")


def _home(actor: Actor) -> Any:
    return next(iter(actor.memberships), None)


# -- of an organisation ------------------------------------------------------------------------------------------------


@transaction.atomic
def requirement_set(actor: Actor, organization: Organization, *, required: bool | None) -> None:
    """Whether members give a second factor. Who has none sets one up at the next sign-in.

    Raises:
        Invalid: it says neither: an empty form must not take the demand back.
    """
    require(actor, "members.edit", organization)
    if required is None:
        raise Invalid("Nothing was sent, so nothing was changed. Fill in the form.")
    changed = Organization.objects.filter(pk=organization.pk, second_factor=not required).update(second_factor=required)
    if changed:
        before, after = {"second_factor": not required}, {"second_factor": required}
        record(actor, "organization.changed", organization, organization=organization, before=before, after=after)


@transaction.atomic
def factor_take_off(actor: Actor, member: Membership) -> None:
    """Takes the authenticator off a member who lost it, and ends all their sign-ins.

    Raises:
        Forbidden: the person belongs to another organisation too, or is a superuser: that is for a superuser.
        Conflict: they have none.
    """
    require(actor, "members.edit", member.organization_id)
    with everything():
        elsewhere = Membership.objects.filter(user=member.user).exclude(organization_id__in=_admin_of(actor)).exists()
    if (elsewhere or member.user.is_superuser) and not actor.user.is_superuser:
        raise Forbidden(f"{member.user} belongs to others too. Ask who runs this site to take the second factor off.")
    _take_off(actor, member.user, organization=member.organization_id)


@transaction.atomic
def factor_take_off_by_command(user: Any) -> None:
    """The same for who runs the site.

    Raises:
        Conflict: the person has none.
    """
    _take_off(Actor(None, interface="command"), user, organization=_home(Actor(user)))


def _take_off(actor: Actor, user: Any, *, organization: Any) -> None:
    taken = SecondFactor.objects.filter(user=user).exclude(confirmed_at=None).delete()[0]
    if not Passkey.objects.filter(user=user).delete()[0] + taken:
        raise Conflict(f"{user} has no second factor.")
    record(actor, "second_factor.taken_off", user, organization=organization)
    sign_out_everywhere(Actor(user, ip=actor.ip, interface=actor.interface))


def _admin_of(actor: Actor) -> list[Any]:
    return [key for key in actor.memberships if actor.may("members.edit", key)]


def with_factor(people: models.QuerySet[Any] | list[Any]) -> set[Any]:
    """The ids of those people who have a second factor: an authenticator, or a passkey."""
    rows = SecondFactor.objects.filter(user__in=people).exclude(confirmed_at=None).values_list("user_id", flat=True)
    return set(rows.union(Passkey.objects.filter(user__in=people).order_by().values_list("user_id", flat=True)))
