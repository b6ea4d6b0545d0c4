"""The first account of a site that has none: made by the person who has the link of ``manage.py first_account``, which
``manage.py up`` prints too. The link is good for a day, and only until an account exists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.urls import reverse
from django.utils.text import slugify

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.row_scope import everything, let_in
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization
from agentcore_site.tenancy.roles import Role

LIVES: Final = timedelta(days=1)
SALT: Final = "first account"
TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended('first account', 0))"


def first_account_path() -> str:
    """The path of the page, with a new token; "" where an account exists."""
    return "" if has_accounts() else reverse("first_account", args=[signing.dumps(SALT, salt=SALT)])


def first_account_check(token: str) -> None:
    """Raises:
    Missing: the link is not of this site, is too old, or an account exists."""
    try:
        signing.loads(token, salt=SALT, max_age=LIVES)
    except signing.BadSignature:
        raise Missing(
            "This link is not of this site, or is too old. manage.py first_account makes a new one."
        ) from None
    if has_accounts():
        raise Missing("This site has an account already. Sign in, or ask an admin for an invitation.")


@transaction.atomic
def first_account_create(
    token: str, *, organization: str, email: str, username: str, password: str, ip: str = ""
) -> Any:
    """Makes an organisation, and the account of its admin, who is a superuser of the site. Returns the person.

    Raises:
        Missing: as ``first_account_check``.
        Invalid: the password is too weak.
        Conflict: an organisation has this name.
    """
    with connection.cursor() as cursor:
        cursor.execute(TURN)  # two at once make one account
    first_account_check(token)
    person = get_user_model()(username=username, email=email, is_staff=True, is_superuser=True)
    home = Organization(name=organization, slug=slugify(organization)[:60] or "organisation")
    try:
        validate_password(password, person)
    except ValidationError as error:
        message = " ".join(error.messages)
        raise Invalid(message, fields={"password": message}) from error
    try:
        with everything(), transaction.atomic():
            home.save()
    except IntegrityError:
        message = "An organisation has this name."
        raise Conflict(message, fields={"organization": message}) from None
    let_in(home.pk)
    person.set_password(password)
    person.save()
    member = Membership.objects.create(organization=home, user=person, role=Role.ADMIN, can_export=True)
    actor = Actor(person, ip=ip, interface="console")
    record(actor, "user.created", person, organization=home.pk)
    record(actor, "membership.created", member, after={"role": member.role, "can_export": member.can_export})
    return person


def has_accounts() -> bool:
    return bool(get_user_model().objects.exists())
