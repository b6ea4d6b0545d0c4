"""Writes sign-ins to the audit log, from Django's own signals."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver

from agentcore_site.audit.services import record
from agentcore_site.identity.sign_ins import session_begun
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address


def _actor(user: Any, request: Any) -> Actor:
    if request is None:
        return Actor(user, interface="console")
    return Actor(user, ip=client_address(request), interface=_interface(request.path_info))


def _interface(path: str) -> str:
    if path.startswith("/sign-in/provider/"):
        return "single sign-on"
    return "jwt" if path.startswith("/api/") else "admin" if path.startswith("/admin/") else "console"


def _home(actor: Actor) -> Any:
    return next(iter(actor.memberships), None)


@receiver(user_logged_in)
def signed_in(sender: Any, request: Any, user: Any, **_: Any) -> None:
    actor = _actor(user, request)
    record(actor, "person.signed_in", organization=_home(actor))
    session_begun(request, user)


@receiver(user_logged_out)
def signed_out(sender: Any, request: Any, user: Any, **_: Any) -> None:
    if user is not None:
        actor = _actor(user, request)
        record(actor, "person.signed_out", organization=_home(actor))


@receiver(user_login_failed)
def refused(sender: Any, credentials: dict[str, Any], request: Any = None, **_: Any) -> None:
    name = str(credentials.get("username", ""))[:150]
    record(_actor(None, request), "person.sign_in_failed", after={"username": name})
