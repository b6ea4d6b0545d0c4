"""A forgotten password: a mail with a link, good once and for an hour, sets another one.

Whether an address has an account shows in nothing that is answered. The link is Django's: it ends with the password
that it replaces, and with the person's next sign-in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Invalid, Missing, TooMany
from agentcore_site.lib.links import absolute_by_socket
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.models import Membership
from agentcore_site.tenancy.sign_in import PERIOD, Tries
from agentcore_site.tenancy.single_sign_on.people import passwords_are_off
from agentcore_site.tenancy.tokens import sign_out_everywhere

ASKED, MAILED, CHANGED = "person.password_asked", "person.password_mailed", "person.password_changed"
PER_ACCOUNT, PER_ADDRESS = 3, 20  # mails within a period
MOST_ACCOUNTS: Final = 5  # of one e-mail address

Link = Callable[[str, str], str]  # the address of the page for a person and a token


def link_at(request: Any) -> Link:
    """The address of the page, from outside."""
    return lambda person, token: absolute_by_socket(request, reverse("password_reset", args=[person, token]))


@everything()
@transaction.atomic
def reset_ask(name: str, *, link: Link, ip: str) -> None:
    """Queues a mail to each active person with this e-mail address or name who belongs to an organisation.

    Raises:
        TooMany: this network address asked too often.
    """
    asking = Actor(None, ip=ip, interface="console")
    lately = AuditEvent.objects.filter(at__gt=timezone.now() - PERIOD)
    if lately.filter(action=ASKED, ip=ip).count() >= PER_ADDRESS:
        raise TooMany("Too many of these mails. Wait 15 minutes, then try again.", retry_after=900)
    record(asking, ASKED)  # also for a name without an account: the limit must not reveal which names exist
    name = name.strip()
    asked = Q(email__iexact=name) | Q(username=name)
    people = get_user_model().objects.filter(asked, is_active=True).exclude(email="").order_by("pk")
    for person in people[:MOST_ACCOUNTS] if name else ():
        home = Membership.objects.filter(user=person).select_related("organization").order_by("pk").first()
        if passwords_are_off(person):
            continue
        if home is None or lately.filter(action=MAILED, target_id=str(person.pk)).count() >= PER_ACCOUNT:
            continue
        place = link(urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person))
        body = (
            f"Another password was asked for {person.get_username()} on AgentCore. Choose one here, within an hour:\n"
            f"{place}\n\nIf you did not ask, ignore this: nothing changes.\n"
        )
        mail_queue(home.organization, to=[person.email], subject="Another password", body=body)
        record(asking, MAILED, person, organization=home.organization_id)


@everything()
def reset_person(person: str, token: str) -> Any:
    """The person whose password the link changes.

    Raises:
        Missing: it opens nothing (any more).
    """
    try:
        found = get_user_model().objects.filter(pk=int(urlsafe_base64_decode(person)), is_active=True).first()
    except (ValueError, OverflowError):
        found = None
    if found is None or not default_token_generator.check_token(found, token):
        raise Missing("This link opens nothing any more. Ask for another mail.")
    return found


@everything()
@transaction.atomic
def password_reset(person: str, token: str, password: str, *, ip: str) -> None:
    """Sets the password, and ends every session and token of the person.

    Raises:
        Missing: the link opens nothing (any more).
        Invalid: the password is too weak.
    """
    found = reset_person(person, token)
    found = get_user_model().objects.select_for_update(no_key=True).get(pk=found.pk)
    reset_person(person, token)  # two at once are one
    try:
        validate_password(password, found)
    except ValidationError as error:
        raise Invalid(" ".join(error.messages), fields={"password": " ".join(error.messages)}) from error
    found.set_password(password)
    found.save(update_fields=["password"])
    actor = Actor(found, ip=ip, interface="console")
    home = Membership.objects.filter(user=found).select_related("organization").order_by("pk").first()
    record(actor, CHANGED, found, organization=None if home is None else home.organization_id)
    sign_out_everywhere(actor)
    if home is not None:
        body = (
            f"The password of {found.get_username()} on AgentCore was changed by a link that was mailed here, and all"
            " sessions were ended. If that was not you, call an admin now.\n"
        )
        mail_queue(home.organization, to=[found.email], subject="Your password was changed", body=body)
    tries = Tries(found.get_username(), ip)
    transaction.on_commit(tries.forgive)
