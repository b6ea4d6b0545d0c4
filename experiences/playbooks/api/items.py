"""REST: the items of a playbook, as people write, change, remove and revert them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Missing
from agentcore_site.lib.links import placed
from agentcore_site.rest.parsing import Strict, parsed
from experiences.agents.api.versions import AgentVersions
from experiences.learning.playbooks.items import CATEGORIES, MAX_CONTENT, PlaybookItem, section_of
from experiences.models import Playbook
from experiences.playbooks.api.playbooks import HIGHEST, SectionOut
from experiences.playbooks.item_effects import effects_of
from experiences.playbooks.selectors import changes_of, playbook_get, sections_of
from experiences.playbooks.services.playbooks import playbook_edit, section_revert
from experiences.playbooks.services.versions import DEFAULT_CONFIDENCE


class ItemChangeOut(serializers.Serializer[Any]):
    version = serializers.IntegerField(help_text="The playbook's version that it made.")
    action = serializers.CharField(help_text="What was done, e.g. added, updated, merged, removed, reverted.")
    before = serializers.JSONField(allow_null=True, help_text="The item before; null: it was not there.")
    after = serializers.JSONField(allow_null=True)
    reason = serializers.CharField()
    by = serializers.CharField(help_text="A person, or an evolution.")
    job_id = serializers.UUIDField(allow_null=True)
    at = serializers.DateTimeField()


class ItemDetail(serializers.Serializer[Any]):
    handle = serializers.CharField(help_text="The item's name, for ever.")
    version = serializers.IntegerField(help_text="The playbook's.")
    evolves = serializers.BooleanField(help_text="Whether the playbook evolves by itself.")
    item = SectionOut(allow_null=True, help_text="Null: it was removed.")
    history = ItemChangeOut(many=True, help_text="The last change first.")


class ItemIn(Strict):
    category = serializers.ChoiceField(choices=CATEGORIES)
    content = serializers.CharField(max_length=MAX_CONTENT)
    confidence = serializers.FloatField(min_value=0, max_value=1, default=DEFAULT_CONFIDENCE)
    rationale = serializers.CharField(max_length=2000, default="", allow_blank=True, help_text="Kept in the history.")


class ItemPatch(Strict):
    category = serializers.ChoiceField(choices=CATEGORIES, required=False)
    content = serializers.CharField(max_length=MAX_CONTENT, required=False)
    rationale = serializers.CharField(max_length=2000, default="", allow_blank=True, help_text="Kept in the history.")


class RevertIn(Strict):
    as_in = serializers.IntegerField(min_value=1, max_value=HIGHEST, help_text="The playbook's version.")


NEW = OpenApiExample(
    "A rule", {"category": "learnings", "content": "Ask for the order's number before you look it up."},
    request_only=True,
)  # fmt: skip


class PlaybookItemViewSet(AgentVersions):
    """Items of an agent's playbook. Each change makes a new version of the playbook, whose `ETag` they all share. The
    agents' context changes with a deployment."""

    queryset = Playbook.objects.none()
    tag = "playbooks"
    serializer_class = ItemDetail
    versioned, parts = ("version", "evolves"), ("handle",)
    idempotent = ("create", "revert")

    @extend_schema(
        summary="Write an item",
        description="The text is redacted. One that says what an item says already is merged with it: `Location` is"
        " that item's.",
        request=ItemIn,
        examples=[NEW],
    )
    def create(self, request: Request, agent: str) -> Response:
        values, playbook = parsed(ItemIn, request.data), playbook_get(self.actor, agent)

        def work() -> Response:
            made = playbook_edit(self.actor, playbook, type="add", **values)
            headers = {"Location": placed(f"/api/v1/playbooks/{playbook.agent.slug}/items/{made.section}")}
            return Response(_detail(playbook, made.section), status=201, headers=headers)

        return self.once(request, work)

    @extend_schema(summary="One item, with its history")
    def retrieve(self, request: Request, agent: str, handle: str) -> Response:
        return Response(_detail(playbook_get(self.actor, agent), handle))

    @extend_schema(summary="Change an item", description="What is not given stays.", request=ItemPatch)
    def partial_update(self, request: Request, agent: str, handle: str) -> Response:
        values, playbook = parsed(ItemPatch, request.data), playbook_get(self.actor, agent)
        now = _there(playbook, handle)
        kept = {"category": now.category, "content": now.content}
        playbook_edit(self.actor, playbook, type="update", target=handle, **kept | values)
        return Response(_detail(playbook, handle))

    @extend_schema(summary="Remove an item")
    def destroy(self, request: Request, agent: str, handle: str) -> Response:
        """Its history stays, and it can be put back by `revert`."""
        playbook = playbook_get(self.actor, agent)
        _there(playbook, handle)
        playbook_edit(self.actor, playbook, type="remove", target=handle)
        return Response(status=204)

    @extend_schema(summary="Restore an earlier version of an item", request=RevertIn)
    def revert(self, request: Request, agent: str, handle: str) -> Response:
        """Its text in an earlier version of the playbook: gone if it was not there then, or back again."""
        values, playbook = parsed(RevertIn, request.data), playbook_get(self.actor, agent)

        def work() -> Response:
            section_revert(self.actor, playbook, section=handle, version=values["as_in"])
            return Response(_detail(playbook, handle))

        return self.once(request, work)

    def versioned_answer(self, request: Request, **place: Any) -> Any:
        playbook = playbook_get(self.actor, place["agent"])
        return {"version": playbook.version, "evolves": playbook.agent.evolves}


def _detail(playbook: Playbook, handle: str) -> dict[str, Any]:
    history = list(changes_of(playbook, handle).order_by("-id"))
    if not history:
        raise Missing(f"There is no item {handle[:20]!r} in this playbook, and there never was.")
    found, effects = section_of(sections_of(playbook), handle), effects_of(playbook)
    shown = {
        "handle": handle,
        "version": playbook.version,
        "evolves": playbook.agent.evolves,
        "item": {**asdict(found), "effect": effects.get(handle)} if found else None,
        "history": history,
    }
    return dict(ItemDetail(shown).data)


def _there(playbook: Playbook, handle: str) -> PlaybookItem:
    found = section_of(sections_of(playbook), handle)
    if found is None:
        raise Missing(f"There is no item {handle[:20]!r} in this playbook now.")
    return found
