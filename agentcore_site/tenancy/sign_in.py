"""Wrong passwords are counted wherever one is taken: console, admin and ``/api/v1/token`` all ask this backend.

Within ``PERIOD`` an address may be wrong ``PER_ADDRESS`` times, and an account ``PER_ACCOUNT`` times from all addresses
together. An address from which the account signed in within ``KNOWN_FOR`` has a counter of its own. So strangers
who use up an account's tries do not lock its person out there. The counters live in Redis; while it is away the failed
sign-ins of the audit log are counted instead.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.cache import cache
from django.db.models import QuerySet
from django.utils import timezone
from redis.exceptions import RedisError

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.lib.broker import broker_asked
from agentcore_site.lib.errors import DomainError, Forbidden, TooMany
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address, network_of
from agentcore_site.tenancy.codes import code_taken, factor_of, is_required
from agentcore_site.tenancy.models import Passkey
from agentcore_site.tenancy.single_sign_on.people import passwords_are_off

PERIOD: Final = timedelta(minutes=15)
PER_ACCOUNT, PER_ADDRESS = 10, 30
KNOWN_FOR: Final = timedelta(days=30)
SIGNED_IN, FAILED = "person.signed_in", "person.sign_in_failed"
WAIT: Final = "Too many wrong passwords. Wait 15 minutes, then try again."


class CodeNeeded(DomainError):
    """The password is right, and the person has a second factor. ``by_passkey``: one that no program can send, so that
    no password gets a token (403)."""

    code, title = 401, "A code is needed"

    def __init__(self, person: Any, *, by_passkey: bool = False) -> None:
        message = "Send a code of your authenticator as well, as `otp`."
        if by_passkey:
            self.code, self.title = 403, "A passkey signs in here"
            message = (
                "You sign in with a passkey, which a program can't send: a password alone gets no token. Make an API"
                " key in the console (Keys), and send that in place of a token."
            )
        super().__init__(message, fields={} if by_passkey else {"otp": "It is needed."})
        self.person = person


class EnrolmentNeeded(DomainError):
    """The password is right, and the person's organisation asks for a second factor that they don't have."""

    code, title = 403, "A second factor is needed"

    def __init__(self, person: Any) -> None:
        super().__init__("Your organisation asks for a second factor. Sign in to the console once to set it up.")
        self.person = person


class CountingBackend(ModelBackend):
    """Django's own check of a password, after a look at how often it went wrong; then the second factor."""

    def authenticate(
        self,
        request: Any,
        username: str | None = None,
        password: str | None = None,
        otp: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """The person, or None. ``otp``: a code of the second factor, for who has one.

        Raises:
            TooMany: too many wrong passwords of this account or from this address; the password was not looked at.
            CodeNeeded: the password is right, and there is no code.
            Forbidden: the password is right, and the person's organisation takes none.
            EnrolmentNeeded: the password is right, and the person has to set up a second factor first.
        """
        if request is None or username is None or password is None:
            return super().authenticate(request, username, password, **kwargs)
        tries = Tries(username, client_address(request))
        tries.begin()
        user = super().authenticate(request, username, password, **kwargs)
        if user is None:
            return None
        if passwords_are_off(user):
            raise Forbidden(f"People of your organisation sign in by {settings.OIDC_NAME}, and not by a password here.")
        factor = factor_of(user)
        if factor or Passkey.objects.filter(user=user).exists():
            # Until its code came the try counts as wrong: else a known password would restart the count of codes.
            if not otp or factor is None:
                raise CodeNeeded(user, by_passkey=factor is None)
            if not code_taken(user, otp):
                return None
        elif is_required(user):
            raise EnrolmentNeeded(user)
        tries.succeed()
        return user


class Tries:
    """The counters of one account and one address."""

    def __init__(self, username: str, address: str) -> None:
        self.username, self.address = username, address
        account = hashlib.sha256(username.casefold().encode("utf-8", "replace")).hexdigest()[:32]
        network = network_of(address)
        self._of_address = f"sign-in:address:{network}"
        self._of_account = f"sign-in:account:{account}"
        self._here = f"sign-in:account:{account}:{network}"
        self._known = f"sign-in:known:{account}:{network}"

    def begin(self) -> None:
        """Counts a try as wrong before its password is looked at, so that many at once can't slip through.

        Raises:
            TooMany: there were too many."""
        try:
            with broker_asked():
                counter = self._here if cache.get(self._known) else self._of_account
                over = _counted(self._of_address) > PER_ADDRESS or _counted(counter) > PER_ACCOUNT
        except RedisError:
            over = self._over_by_audit()
        if over:
            raise TooMany(WAIT, retry_after=int(PERIOD.total_seconds()))

    def succeed(self) -> None:
        """The password was right: the account's counters restart, and the address is known from now on."""
        try:
            with broker_asked():
                cache.delete_many([self._of_account, self._here])
                cache.decr(self._of_address)
                cache.set(self._known, 1, KNOWN_FOR.total_seconds())
        except (RedisError, ValueError):  # ValueError: the counter ended in between
            return

    def forgive(self) -> None:
        """The person proved by other means who they are: the account's counters restart."""
        try:
            with broker_asked():
                cache.delete_many([self._of_account, self._here])
        except RedisError:
            return

    @everything()
    def _over_by_audit(self) -> bool:
        wrong = _events(FAILED, PERIOD)
        if wrong.filter(ip=self.address).count() >= PER_ADDRESS:
            return True
        of_account = wrong.filter(after__username__iexact=self.username)
        here = _events(SIGNED_IN, KNOWN_FOR).filter(actor__iexact=self.username, ip=self.address)
        if here.exists():
            of_account = of_account.filter(ip=self.address)
        return of_account.count() >= PER_ACCOUNT


def _counted(key: str) -> int:
    """One more under ``key``, which lives ``PERIOD`` from its first. Returns how many there are."""
    if cache.add(key, 1, PERIOD.total_seconds()):
        return 1
    try:
        return int(cache.incr(key))
    except ValueError:  # it ended between the two
        cache.set(key, 1, PERIOD.total_seconds())
        return 1


def _events(action: str, within: timedelta) -> QuerySet[AuditEvent]:
    return AuditEvent.objects.filter(action=action, at__gt=timezone.now() - within)


def code_refused(request: Any, person: Any) -> None:
    """Notes a wrong code after a right password, with the failed sign-ins."""
    after = {"username": person.get_username(), "step": "second factor"}
    record(Actor(None, ip=client_address(request), interface="console"), FAILED, after=after)


def passkey_refused(request: Any, person: Any) -> None:
    """Notes a passkey that was not accepted. Whose it was is known after a right password alone."""
    after = {"username": person.get_username() if person else "", "step": "passkey"}
    record(Actor(None, ip=client_address(request), interface="console"), FAILED, after=after)


def provider_refused(request: Any, reason: str) -> None:
    """Notes a sign-in by the provider that was refused. Whose it was is not known."""
    after = {"username": "", "step": "single sign-on", "reason": reason}
    record(Actor(None, ip=client_address(request), interface="single sign-on"), FAILED, after=after)
