"""The actor of a request: a person, perhaps narrowed by the scopes of the key that was used."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.roles import SCOPES, SERVICE, VIEW

if TYPE_CHECKING:
    from agentcore_site.tenancy.organizations import Membership

# What the permission to export gives beside a role: who may take data along may look at it.
WITH_EXPORT: Final = frozenset({"export", "data.view"})


@dataclass(frozen=True)
class Actor:
    """A user, with the ``interface`` of the request: "console", "jwt", "key …", "admin", "command" and others.

    ``scopes`` is None for a person signed in to the console or holding a JWT, else the scopes of the API key;
    ``organization_id`` narrows a key to the organisation that it was made for.
    """

    user: Any
    scopes: frozenset[str] | None = None
    organization_id: uuid.UUID | None = None
    ip: str = ""
    interface: str = ""
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, who: Any) -> Actor:
        """The actor itself, or the one that a bare user is."""
        return who if isinstance(who, Actor) else cls(user=who)

    @cached_property
    def memberships(self) -> dict[uuid.UUID, Membership]:
        """The person's memberships by organisation; empty for a stranger or a disabled account."""
        if not getattr(self.user, "is_authenticated", False) or not self.user.is_active:
            return {}
        from agentcore_site.tenancy.role_groups import memberships_of  # models: apps have to be ready

        with everything():
            return {row.organization_id: row for row in memberships_of(self.user, self.organization_id)}

    @cached_property
    def rights(self) -> dict[uuid.UUID, frozenset[str]]:
        """By organisation, what the person's role there and the permission to export allow; a key narrows it."""
        from agentcore_site.tenancy.role_groups import rights_of

        return {
            key: rights_of(row) | (WITH_EXPORT if row.can_export else frozenset())
            for key, row in self.memberships.items()
        }

    @property
    def organization_ids(self) -> list[uuid.UUID]:
        return list(self.memberships)

    @cached_property
    def allowed_by_scopes(self) -> frozenset[str] | None:
        if self.scopes is None:
            return None
        return frozenset().union(*(SCOPES.get(scope, frozenset()) for scope in self.scopes))

    @property
    def only_service(self) -> bool:
        """A key or token for services beside agents and nothing else: it opens ``/internal/ace/`` only."""
        return self.scopes == frozenset({SERVICE})

    @property
    def runs_site(self) -> bool:
        """Staff, who see what belongs to no organisation: processes, dependencies, sizes. Not by a key of one."""
        return bool(getattr(self.user, "is_staff", False)) and self.organization_id is None

    @property
    def may_read(self) -> bool:
        return self.allowed_by_scopes is None or bool(self.allowed_by_scopes & VIEW)

    def may(self, action: str, organization_id: uuid.UUID) -> bool:
        """Whether the role in that organisation, and the key's scopes, allow ``action``."""
        if self.allowed_by_scopes is not None and action not in self.allowed_by_scopes:
            return False
        return action in self.rights.get(organization_id, frozenset())

    def may_somewhere(self, action: str) -> bool:
        return any(self.may(action, membership) for membership in self.memberships)

    @property
    def name(self) -> str:
        return str(getattr(self.user, "username", "") or "system")
