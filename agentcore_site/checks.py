"""System checks of our own."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

MEND: Final = (
    "Set PUBLIC_URL to https://… where a proxy is the end of TLS (or HTTPS=1 without an address), or TLS_CERT_FILE and"
    " TLS_KEY_FILE. PRIVATE_SITE=1 says that only machines of one private network reach the site."
)


@register(Tags.security, deploy=True)
def metrics_are_guarded(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """/metrics names jobs and costs of every organisation, so it needs a token wherever it can be reached."""
    if settings.METRICS_TOKEN:
        return []
    return [Warning("METRICS_TOKEN is not set: /metrics answers loopback only.", id="agentcore.W001")]


@register(Tags.security, deploy=True)
def tls_is_somewhere(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """A deployment is reached by others: passwords, keys and cookies go by TLS, or a person says that they need not."""
    if reason := plain_http():
        return [Error(reason, hint=MEND, id="agentcore.E002")]
    return []


def plain_http(bind: str = "") -> str:
    """The reason why this site would send secrets without TLS to other machines; "" where it would not.

    ``bind``: the address that web listens on. With that, a site on loopback without a name is a person's own, and has
    no reason. Without, it is a deployment, and loopback may have a proxy before it.
    """
    if settings.DEBUG or settings.HTTPS or settings.PRIVATE_SITE:
        return ""
    named = urlsplit(settings.PUBLIC_URL).hostname
    if named and not (bind and _is_loopback(named)):
        return f"People would reach {settings.PUBLIC_URL} without TLS."
    if bind and _is_loopback(bind):
        return ""
    return f"Web would listen on {bind} without TLS." if bind else "There is no TLS: PUBLIC_URL is not set."


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@register(Tags.database)
def groups_name_organizations(app_configs: Any, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Warns of an unknown organisation in ``OIDC_GROUPS``, which would silently give no person a role. Runs with the
    database, by ``migrate``, and so at each start. A site without an organisation is not delayed."""
    named = {slug for _, slug, _ in settings.OIDC_GROUPS} | {settings.OIDC_ORGANIZATION} - {""}
    if not named or "default" not in (databases or ()):
        return []
    from agentcore_site.lib.row_scope import everything
    from agentcore_site.tenancy.models import Organization

    if Organization._meta.db_table not in connections["default"].introspection.table_names():
        return []
    with everything():
        known = set(Organization.objects.values_list("slug", flat=True))
    unknown = sorted(named - known) if known else []
    if not unknown:
        return []
    message = f"OIDC_GROUPS or OIDC_ORGANIZATION names no organisation of this site: {', '.join(unknown)}."
    hint = f"Name organisations by their slug: {', '.join(sorted(known)[:20])}. Or make it first."
    return [Error(message, hint=hint, id="agentcore.E001")]
