"""A person's sign-ins: sessions of browsers, and programs with tokens. Each can be ended by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.models import BrowserSession, TokenFamily

SEEN: Final = "seen_at"  # in the session: seconds since 1970
SEEN_EVERY: Final = 300  # seconds: so seldom is it written down
LONGEST: Final = 300

# The first that is named counts: Edge and Opera name Chrome, and Chrome names Safari.
BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("HeadlessChrome/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "an iPhone"),
    ("iPad", "an iPad"),
    ("Windows", "Windows"),
    ("Macintosh", "a Mac"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True)
class SignInPlace:
    """``kind``: browser or program. ``client``: which, in words. ``is_current``: the session that asks."""

    id: UUID
    kind: str
    created_at: datetime
    used_at: datetime
    ip: str
    client: str
    is_current: bool = False


def program_of(request: Any) -> str:
    """The client's name for itself in a request; it is not verified."""
    text = request.META.get("HTTP_USER_AGENT", "")
    return "".join(one for one in text if one.isprintable())[:LONGEST]


def client_in_words(agent: str, *, otherwise: str) -> str:
    """Browser and system of a ``User-Agent``, else its first word without the version."""
    browser = next((name for mark, name in BROWSERS if mark in agent), "")
    system = next((name for mark, name in SYSTEMS if mark in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    first = re.match(r"[A-Za-z][\w.+-]{1,39}", agent)
    return browser or (first[0] if first and first[0] != "Mozilla" else otherwise)


def session_begun(request: Any, user: Any) -> None:
    """Notes where a session began. Called when its person has just signed in."""
    session = getattr(request, "session", None)
    if session is None:
        return
    if session.session_key is None:
        session.save()
    session[SEEN] = int(time.time())
    _noted(request, user)


def _noted(request: Any, user: Any) -> None:
    at = {"used_at": timezone.now(), "ip": client_address(request), "browser": program_of(request)}
    BrowserSession.objects.update_or_create(session_key=request.session.session_key, defaults=at | {"user_id": user.pk})


class SeenSessions:
    """Middleware: notes, each few minutes, that a session was used, and from where."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        session = request.session
        # What no view looked at is not loaded for this.
        if session.accessed and session.session_key and SESSION_KEY in session and _is_due(session):
            session[SEEN] = int(time.time())
            if request.user.is_authenticated:
                _noted(request, request.user)
        return response


def _is_due(session: Any) -> bool:
    return bool(time.time() - session.get(SEEN, 0) > SEEN_EVERY)


def sign_ins_of(actor: Actor, *, session_key: str | None = None) -> list[SignInPlace]:
    """The person's living sign-ins, the newest first. ``session_key``: of the session that asks."""
    return sorted([*_browsers(actor, session_key), *_programs(actor)], key=lambda one: one.used_at, reverse=True)


def _browsers(actor: Actor, session_key: str | None) -> list[SignInPlace]:
    living = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=timezone.now())
    rows = BrowserSession.objects.filter(Exists(living), user=actor.user)
    return [
        SignInPlace(
            id=row.id,
            kind="browser",
            created_at=row.created_at,
            used_at=row.used_at,
            ip=row.ip,
            client=client_in_words(row.browser, otherwise="a browser"),
            is_current=row.session_key == session_key,
        )
        for row in rows
    ]


def _programs(actor: Actor) -> list[SignInPlace]:
    rows = TokenFamily.objects.filter(user=actor.user, ended_at=None, expires_at__gt=timezone.now())
    return [
        SignInPlace(
            id=row.id,
            kind="program",
            created_at=row.created_at,
            used_at=row.renewed_at or row.created_at,
            ip=row.ip,
            client=client_in_words(row.program, otherwise="a program"),
        )
        for row in rows
    ]


@transaction.atomic
def sign_in_end(actor: Actor, key: UUID) -> None:
    """Ends one sign-in of the person's own.

    Raises:
        Forbidden: a key or a narrowed token asks; it may not end more than itself.
        Missing: the person has no such sign-in (any more).
    """
    if actor.scopes is not None:
        raise Forbidden("A key or a narrowed token can't end a sign-in. Sign in for that.")
    row = BrowserSession.objects.filter(id=key, user=actor.user).first()
    families = TokenFamily.objects.filter(id=key, user=actor.user, ended_at=None, expires_at__gt=timezone.now())
    if row is not None:
        ended, kind = Session.objects.filter(session_key=row.session_key).delete()[0], "browser"
        row.delete()
    else:
        ended, kind = families.update(ended_at=timezone.now()), "program"
    if not ended:
        raise Missing("This sign-in has ended already.")
    record(actor, "person.sign_in_ended", organization=next(iter(actor.memberships), None), after={"kind": kind})
