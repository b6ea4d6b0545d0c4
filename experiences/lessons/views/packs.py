"""Prompt packs: the stamped frames of agents' prompts."""

from __future__ import annotations

from typing import Any

from agentcore_site.console.pages import allowed
from agentcore_site.console.row_pages import RowPages
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.forms import PackForm
from experiences.lessons.selectors import agents_by_domain, pack_get, packs_visible
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.lessons.shapes import PackOut
from experiences.lessons.stamps import pack_fault


class PackPages(RowPages):
    """All members of the organisation may read a pack; those who edit agents may change it."""

    one = ("prompt pack", "pack")
    right = "agent.edit"
    readable = True
    form = PackForm
    templates = ("lessons/prompt_packs.html", "lessons/prompt_pack.html")
    addresses = ("experiences:prompt_packs", "experiences:prompt_pack")
    notices = (
        "{} was created and stamped. Select it in an agent's form.",
        "Saved and stamped. Jobs that act by it and have not ended go on with it as it is now.",
        "{} is archived.",
    )
    reads = (packs_visible, pack_get)
    writes = (pack_create, pack_update, pack_archive)
    columns = PackOut
    searched = ("name", "domain")

    def rows(self, found: list[Any]) -> list[Any]:
        return [{"pack": pack, "fault": pack_fault(pack)} for pack in found]

    def context(self, actor: Actor, form: Any, row: Any) -> dict[str, Any]:
        if row is None:
            return {}
        return {
            "fault": pack_fault(row),
            "users": list(row.agents.filter(archived_at=None)),
            "choosers": list(agents_by_domain(row)),
            "may": allowed(actor, row.organization_id),
        }


pages = PackPages()
