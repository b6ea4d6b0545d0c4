"""The site's rules for outbound calls, from its settings, and the check of an address that is about to be saved."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agentcore_site.lib.errors import Invalid
from agentcore_site.outbound import AddressRefused, OutboundPolicy, current_policy, parsed
from agentcore_site.outbound.addresses import AllowList
from agentcore_site.outbound.policy import host_of


def site_policy() -> OutboundPolicy:
    """The rules as the settings are now.

    Raises:
        ImproperlyConfigured: a setting can't be used; the message names it.
    """
    proxies = tuple(sorted(settings.OUTBOUND_PROXIES.items()))
    return _made(tuple(settings.OUTBOUND_ALLOW), settings.LLM_BASE_URL, settings.OUTBOUND_CA_FILE, proxies)


@lru_cache(maxsize=64)
def _made(allow: tuple[str, ...], model_url: str, ca_file: str, proxies: tuple[tuple[str, str], ...]) -> OutboundPolicy:
    try:
        # The operator, not a tenant, names the site's own model service: its host needs no entry of its own.
        own = (host_of(parsed(model_url)),) if model_url else ()
    except AddressRefused as error:
        raise ImproperlyConfigured(f"LLM_BASE_URL: {error}") from error
    try:
        allowed = AllowList.of((*allow, *own))
    except ValueError as error:
        raise ImproperlyConfigured(f"OUTBOUND_ALLOW: {error}") from error
    if ca_file and not Path(ca_file).is_file():
        raise ImproperlyConfigured(f"OUTBOUND_CA_FILE: there is no file {ca_file}.")
    return OutboundPolicy(allowed, ca_file, dict(proxies))


def check_address(field: str, address: str, *, before: str = "") -> None:
    """Checks an address that a person enters. One that is stored already (``before``) was checked, and is checked
    again at each connection.

    Raises:
        Invalid: this site does not call it, or it is malformed.
    """
    if not address or address == before:
        return
    try:
        current_policy().check_entered(address)
    except AddressRefused as error:
        raise Invalid(str(error), fields={field: str(error)}) from None
