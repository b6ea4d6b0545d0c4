"""System checks of our own."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections


@register(Tags.security, deploy=True)
def metrics_are_guarded(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """/metrics names jobs and costs of every organisation, so it needs a token wherever it can be reached."""
    if settings.METRICS_TOKEN:
        return []
    return [Warning("METRICS_TOKEN is not set: /metrics answers loopback only.", id="agentcore.W001")]


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
