"""Codes of a second factor: of an authenticator (TOTP, RFC 6238), and recovery codes for who lost it.

A code is good for its period and the one before and after, and once; a recovery code once. Who asks counts the wrong
ones (``tenancy.sign_in``).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any, Final

import pyotp
from django.db.models import F, Func, Value

from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.models import Membership, SecondFactor
from agentcore_site.vault import opened

PERIOD: Final = 30  # seconds
AROUND: Final = (0, -1, 1)  # periods that a clock may be off


def factor_of(user: Any) -> SecondFactor | None:
    """The person's authenticator, once it was confirmed."""
    return SecondFactor.objects.filter(user=user).exclude(confirmed_at=None).first()


@everything()
def is_required(user: Any) -> bool:
    """Whether an organisation of the person's asks for one."""
    return bool(Membership.objects.filter(user=user, organization__second_factor=True).exists())


def code_taken(user: Any, code: str) -> bool:
    """True if the code is of the person's authenticator, or a recovery code. The code is used up: of two requests with
    the same code at once, one succeeds."""
    text = "".join(code.split()).replace("-", "").lower()[:40]
    row = factor_of(user)
    if row is None or not text.isascii():
        return False
    return _step_taken(row, text) if text.isdigit() and len(text) == 6 else _recovery_taken(row, text)


def _step_taken(row: SecondFactor, code: str) -> bool:
    generator, now = pyotp.TOTP(opened(row.sealed), interval=PERIOD), int(time.time()) // PERIOD
    for step in (now + around for around in AROUND):
        if secrets.compare_digest(generator.at(step * PERIOD), code):
            # Not only this code but all before it are used up (RFC 6238, section 5.2).
            return bool(SecondFactor.objects.filter(pk=row.pk, last_step__lt=step).update(last_step=step))
    return False


def _recovery_taken(row: SecondFactor, code: str) -> bool:
    digest = recovery_digest(code)
    left = Func(F("recovery"), Value(digest), function="array_remove")
    return bool(SecondFactor.objects.filter(pk=row.pk, recovery__contains=[digest]).update(recovery=left))


def recovery_digest(code: str) -> str:
    # A fast hash is right: ten of these letters are 49 random bits, and tries are counted.
    return hashlib.sha256(code.encode()).hexdigest()
