"""Settings of the provider, from the environment."""

from __future__ import annotations

from django.conf import settings

from agentcore_site.tenancy.roles import Role

Mapping = dict[str, list[tuple[str, str]]]  # a group's name to organisations (slugs) and roles

RANK = (Role.STAKEHOLDER, Role.DEVELOPER, Role.OPERATOR, Role.ADMIN)


def is_on() -> bool:
    return bool(settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID)


def group_mapping() -> Mapping:
    found: Mapping = {}
    for group, slug, role in settings.OIDC_GROUPS:
        found.setdefault(group, []).append((slug, role))
    return found


def slugs() -> set[str]:
    """The organisations whose people sign in by the provider."""
    named = {slug for _, slug, _ in settings.OIDC_GROUPS}
    return named | ({settings.OIDC_ORGANIZATION} if settings.OIDC_ORGANIZATION else set())


def roles_by_groups(groups: list[str]) -> dict[str, str]:
    """The highest role that these groups give, by organisation."""
    found: dict[str, str] = {}
    for slug, role in (one for group in groups for one in group_mapping().get(group, ())):
        if slug not in found or RANK.index(Role(role)) > RANK.index(Role(found[slug])):
            found[slug] = role
    return found
