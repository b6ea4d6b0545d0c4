"""The account of a provider's person here, and the role that their groups give.

A person is known by issuer and subject, once they came; the first time by a verified e-mail address. A superuser is
never taken over by an address: who runs the provider would run this site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q

from agentcore_site.audit.services import record
from agentcore_site.lib.row_scope import everything
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization, ProviderAccount
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.single_sign_on.config import is_on, roles_by_groups, slugs
from agentcore_site.tenancy.single_sign_on.errors import SignOnRefused

INTERFACE = "single sign-on"
# What a person knows, has and is, in the words of RFC 8176.
KINDS_OF_PROOF = (
    frozenset({"pwd", "pin", "kba"}),
    frozenset({"otp", "hwk", "swk", "sms", "tel", "sc"}),
    frozenset({"face", "fpt", "iris", "retina", "vbm"}),
)


@everything()
def person_of(claims: Mapping[str, Any], *, ip: str) -> Any:
    """The person whom the provider names, with the roles that their groups give now.

    Raises:
        SignOnRefused: they may not come in; the message says why. Roles that were taken away stay away.
    """
    person = _person_with_roles(claims, ip)
    if not person.memberships.exists():
        raise SignOnRefused("None of your groups may use AgentCore. Ask an admin of your organisation.")
    return person


@transaction.atomic
def _person_with_roles(claims: Mapping[str, Any], ip: str) -> Any:
    account = ProviderAccount.objects.filter(issuer=claims["iss"], subject=str(claims["sub"])[:255]).first()
    person, is_new = (account.user, False) if account else _found_or_made(claims)
    if not person.is_active:
        raise SignOnRefused("Your account here is switched off. Ask an admin of your organisation.")
    actor = Actor(person, ip=ip, interface=INTERFACE)
    if account is None:
        ProviderAccount.objects.create(user=person, issuer=claims["iss"], subject=str(claims["sub"])[:255])
        record(actor, "person.created" if is_new else "person.linked", person)
    _apply(actor, person, roles_by_groups(_groups(claims)), is_new=is_new)
    return person


def _found_or_made(claims: Mapping[str, Any]) -> tuple[Any, bool]:
    email = str(claims.get("email", "")).strip()
    if not email or len(email) > 150 or unstorable(email) or claims.get("email_verified") is not True:
        raise SignOnRefused("The provider does not vouch for your e-mail address. Have it verified there.")
    people = get_user_model()._default_manager
    known = list(people.filter(Q(email__iexact=email) | Q(username__iexact=email))[:2])
    if len(known) > 1:
        raise SignOnRefused("Several accounts here have your e-mail address. Ask who runs this site.")
    if not known:
        made = get_user_model()(username=email, email=email)
        made.set_unusable_password()
        made.save()
        return made, True
    if known[0].is_superuser:
        raise SignOnRefused("Superusers sign in by password.")
    return known[0], False


def _groups(claims: Mapping[str, Any]) -> list[str]:
    found = claims.get(settings.OIDC_GROUPS_CLAIM, [])
    return [str(one) for one in (found if isinstance(found, list) else [found])]


def _apply(actor: Actor, person: Any, wanted: dict[str, str], *, is_new: bool) -> None:
    """In organisations of the mapping the groups decide, at each sign-in; elsewhere nothing changes."""
    mapped = {slug for _, slug, _ in settings.OIDC_GROUPS}
    for organization in Organization.objects.filter(slug__in=mapped).order_by("slug"):
        _role_set(actor, person, organization, wanted.get(organization.slug))
    home = settings.OIDC_ORGANIZATION
    if is_new and home not in mapped and (there := Organization.objects.filter(slug=home).first()):
        _role_set(actor, person, there, Role.STAKEHOLDER)


def _role_set(actor: Actor, person: Any, organization: Organization, role: str | None) -> None:
    row = (
        Membership.objects.select_for_update(of=("self",), no_key=True)
        .filter(organization=organization, user=person)
        .first()
    )
    if role is None:
        if row is not None:
            before = {"role": row.role, "can_export": row.can_export}
            record(actor, "membership.deleted", row, organization=organization, before=before)
            row.delete()
    elif row is None:
        row = Membership.objects.create(organization=organization, user=person, role=role)
        record(actor, "membership.created", row, organization=organization, after={"role": role})
    elif row.role != role:
        before = {"role": row.role}
        Membership.objects.filter(pk=row.pk).update(role=role)
        record(actor, "membership.changed", row, organization=organization, before=before, after={"role": role})


def said_second_factor(claims: Mapping[str, Any]) -> bool:
    """Whether the provider asked for two kinds of proof: it says so (``amr``, RFC 8176), or is trusted to."""
    if settings.OIDC_SECOND_FACTOR:
        return True
    found = claims.get("amr", [])
    methods = {str(one) for one in found} if isinstance(found, list) else set()
    return "mfa" in methods or sum(bool(methods & kind) for kind in KINDS_OF_PROOF) > 1


@everything()
def passwords_are_off(person: Any) -> bool:
    """Whether the person signs in by the provider alone."""
    if not (settings.OIDC_ONLY and is_on()) or person.is_superuser:
        return False
    return bool(Membership.objects.filter(user=person, organization__slug__in=slugs()).exists())


def takes_no_passwords(organization: Organization) -> bool:
    """Whether the people of an organisation sign in by the provider alone."""
    return bool(settings.OIDC_ONLY and is_on() and organization.slug in slugs())
