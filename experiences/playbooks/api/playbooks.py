"""REST: playbooks of agents, and changes that wait for a person's approval."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from experiences.agents.api.versions import AgentVersions
from experiences.learning.playbooks.items import CATEGORIES, MAX_CONTENT
from experiences.lessons.filters import OfAgent
from experiences.lessons.selectors import experience_get
from experiences.models import ContextDelta, DeltaState, DeltaType, Playbook
from experiences.models.agent_lookup import agent_get
from experiences.playbooks.item_effects import effects_of
from experiences.playbooks.presenters.items import EvolutionsOut, PlaybookOut
from experiences.playbooks.presenters.reviews import DeltaOut, ReplacedOut
from experiences.playbooks.selectors import (
    WAITING,
    compiled_of,
    delta_get,
    deltas_visible,
    evolution_status,
    playbook_get,
    playbooks_visible,
    sections_of,
    versions_differ,
    versions_of,
)
from experiences.playbooks.services.adoption import playbook_adopt
from experiences.playbooks.services.playbooks import playbook_create, playbook_delete, playbook_rollback
from experiences.playbooks.services.reviews import delta_approve, delta_reject, replaced_by

HIGHEST = 2**31 - 1
MOST_VERSIONS = 200


@extend_schema_serializer(deprecate_fields=["told", "success_told"])
class EffectOut(serializers.Serializer[Any]):
    included = serializers.IntegerField(source="included.n", help_text="Executions with the item.")
    told = serializers.IntegerField(source="included.n", help_text="The former name of `included`.")
    left_out = serializers.IntegerField(source="left_out.n", help_text="Executions that lacked it by chance.")
    success_included = serializers.FloatField(
        source="included.share", help_text="Share of the executions with the item that succeeded."
    )
    success_told = serializers.FloatField(source="included.share", help_text="The former name of `success_included`.")
    success_left_out = serializers.FloatField(source="left_out.share", help_text="Share of those without.")
    difference = serializers.FloatField(help_text="What the item adds to that share, -1 to 1.")
    low = serializers.FloatField(help_text="Lower end of the 95 % interval of the difference, for one analysis.")
    high = serializers.FloatField()
    sequence_low = serializers.FloatField(
        help_text="Lower end of the 95 % confidence sequence, which holds at all analyses at once. An evolution"
        " takes an item out whose sequence lies below 0."
    )
    sequence_high = serializers.FloatField()
    known = serializers.BooleanField(help_text="Whether there are at least 20 executions of each kind.")
    used = serializers.IntegerField(help_text="Executions whose agent said that its answer used the item.")
    reporting = serializers.IntegerField(help_text="Executions with the item whose agent said what it used.")


class SectionOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="Its name, for ever.")
    category = serializers.ChoiceField(choices=CATEGORIES)
    content = serializers.CharField()
    confidence = serializers.FloatField()
    support = serializers.IntegerField(help_text="How often it was suggested.")
    usage = serializers.IntegerField(help_text="Executions with it in their context.")
    helpful = serializers.IntegerField(help_text="Of those, how many succeeded.")
    harmful = serializers.IntegerField(help_text="Of those, how many failed.")
    effect = EffectOut(
        allow_null=True, help_text="What it adds, from contexts that lacked it by chance; null: none lacked it yet."
    )


def _sections_shown(playbook: Playbook) -> list[dict[str, Any]]:
    effects = effects_of(playbook)
    return [{**asdict(section), "effect": effects.get(section.id)} for section in sections_of(playbook)]


class PlaybookDetail(PlaybookOut):
    sections = SectionOut(many=True, read_only=True, help_text="In the order in which they are read.")
    context = serializers.SerializerMethodField(  # type: ignore[assignment]
        help_text="Services' present context as text: items and lessons of its release, or of the newest version where"
        " the agent's ace_release is direct. Null: none is served."
    )
    draft = serializers.CharField(source="context", help_text="Its newest items as text.")
    evolutions = EvolutionsOut(read_only=True)

    def get_context(self, row: Playbook) -> str | None:
        try:
            return compiled_of(row).context
        except (Missing, Conflict):
            return None

    computed = {**PlaybookOut.computed, "sections": _sections_shown, "evolutions": evolution_status}


class VersionOut(Shape):
    number = serializers.IntegerField()
    action = serializers.CharField(help_text="What was done, e.g. created, edited, evolved, adopted.")
    note = serializers.CharField()
    by = serializers.CharField(help_text="A person, or an evolution.")
    job_id = serializers.UUIDField(allow_null=True)
    section_count = serializers.IntegerField(read_only=True)
    at = serializers.DateTimeField()

    computed = {"section_count": lambda version: len(version.sections)}


class VersionsQuery(Strict):
    before = serializers.IntegerField(
        min_value=1, max_value=HIGHEST, required=False, help_text="Only versions with a lower number."
    )
    limit = serializers.IntegerField(min_value=1, max_value=MOST_VERSIONS, default=50)


class VersionsOut(serializers.Serializer[Any]):
    results = VersionOut(many=True)
    next = serializers.IntegerField(allow_null=True, help_text="Ask with `before=` this for the older ones.")


class DeleteQuery(Strict):
    executions = serializers.BooleanField(default=False, help_text="Delete the agent's executions too. Else they stay.")


class DiffQuery(Strict):
    a = serializers.IntegerField(min_value=1, max_value=HIGHEST, help_text="Previous version.")
    b = serializers.IntegerField(min_value=1, max_value=HIGHEST, help_text="The version after.")


class ItemOut(serializers.Serializer[Any]):
    category = serializers.ChoiceField(choices=CATEGORIES)
    content = serializers.CharField()
    confidence = serializers.FloatField()
    support = serializers.IntegerField()


class DifferenceOut(serializers.Serializer[Any]):
    section = serializers.CharField(help_text="The item's id.")
    change = serializers.ChoiceField(choices=["added", "removed", "changed"], source="kind")
    before = ItemOut(allow_null=True)
    after = ItemOut(allow_null=True)


class DiffOut(serializers.Serializer[Any]):
    a = serializers.IntegerField()
    b = serializers.IntegerField()
    differences = DifferenceOut(many=True)


class AdoptIn(Strict):
    experiences = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        allow_empty=False,
        max_length=100,
        help_text="Active lessons of the agent; without it all of them.",
    )
    category = serializers.ChoiceField(choices=CATEGORIES, required=False)
    version = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=HIGHEST,
        help_text="The playbook's version that was read, 0 for none: with another one now, nothing is done (409).",
    )


class FirstItemIn(Strict):
    category = serializers.ChoiceField(choices=CATEGORIES)
    content = serializers.CharField(max_length=MAX_CONTENT)
    confidence = serializers.FloatField(min_value=0, max_value=1, required=False)


class NewPlaybookIn(Strict):
    agent = serializers.CharField(max_length=60, help_text="By id or slug.")
    items = serializers.ListField(child=FirstItemIn(), default=list, help_text="What it begins with.")


class RollBackIn(Strict):
    to = serializers.IntegerField(min_value=1, max_value=HIGHEST, help_text="The version whose items it gets.")


class ApproveIn(Strict):
    content = serializers.CharField(
        max_length=MAX_CONTENT, required=False, help_text="Another text; checked like any other."
    )
    category = serializers.ChoiceField(choices=CATEGORIES, required=False)
    replaces = serializers.CharField(
        max_length=16,
        required=False,
        allow_blank=True,
        help_text="The item that `replaces` of the review names, empty for none: 409 if another one would make room."
        " Without it the weakest by measured effect does.",
    )


class ReviewOut(DeltaOut):
    replaces = serializers.SerializerMethodField(
        help_text="The item that makes room for it in a full playbook: of a change that waits the one that its approval"
        " would take out, of an approved one the one that it took out."
    )

    @extend_schema_field(ReplacedOut(allow_null=True))
    def get_replaces(self, row: ContextDelta) -> Any:
        found = replaced_by(row)
        return None if found is None else ReplacedOut(found).data


class RejectIn(Strict):
    reason = serializers.CharField(
        max_length=300, required=False, allow_blank=True, help_text="Kept with the decision."
    )


class PlaybookFilters(filters.FilterSet):
    search = filters.CharFilter(
        field_name="agent__name", lookup_expr="icontains", help_text="Text in the agent's name."
    )

    class Meta:
        model = Playbook
        fields: list[str] = []


class ReviewFilters(OfAgent):
    type = filters.ChoiceFilter(field_name="type", choices=DeltaType.choices)
    state = filters.ChoiceFilter(
        field_name="state", choices=DeltaState.choices, help_text="Without it: what waits for a person."
    )

    class Meta:
        model = ContextDelta
        fields: list[str] = []


FIRST = OpenApiExample(
    "With an item",
    {"agent": "support", "items": [{"category": "learnings", "content": "Ask for the order's number first."}]},
    request_only=True,
)
ADOPT = OpenApiExample("All active lessons", {"category": "learnings"}, request_only=True)
EDITED = OpenApiExample(
    "With a better text", {"content": "Check the stock before you promise a date."}, request_only=True
)


class PlaybookViewSet(AgentVersions, ReadViewSet):
    """Playbooks by their agent's id or slug."""

    queryset = Playbook.objects.none()
    tag = "playbooks"
    serializer_class = PlaybookDetail
    filterset_class = PlaybookFilters
    versioned = ("version", "evolves")
    orderings = {"-created_at": "created_at", "-updated_at": "updated_at", "items": "section_count"}
    known_query = {"versions": ("before", "limit"), "diff": ("a", "b"), "destroy": ("executions",)}
    idempotent = ("create", "roll_back", "adopt")
    list_class = PlaybookOut
    lists = ("List playbooks", playbooks_visible)
    reads = ("One agent's playbook, with its items", playbook_get)

    @extend_schema(summary="Make an agent's playbook", request=NewPlaybookIn, examples=[FIRST])
    def create(self, request: Request) -> Response:
        """It evolves if the agent does (`evolves`, PATCH `agents`)."""
        values = parsed(NewPlaybookIn, request.data)
        agent, items = agent_get(self.actor, values["agent"]), [dict(item) for item in values["items"]]

        def work() -> Response:
            playbook_create(self.actor, agent=agent, initial_sections=items)
            return self.answer(playbook_get(self.actor, agent.pk), status=201)

        return self.once(request, work)

    @extend_schema(summary="Delete a playbook", parameters=[DeleteQuery])
    def destroy(self, request: Request, agent: str) -> Response:
        """With all its history; an evolution under way is cancelled. It can't be undone. It works for an archived agent
        too."""
        asked = parsed(DeleteQuery, request.query_params.dict())
        playbook_delete(self.actor, playbook_get(self.actor, agent), executions=asked["executions"])
        return Response(status=204)

    @extend_schema(summary="Roll a playbook back", request=RollBackIn)
    @action(detail=True, methods=["post"], pagination_class=None, url_path="roll-back")
    def roll_back(self, request: Request, agent: str) -> Response:
        """A new version with the items of an earlier one."""
        to, playbook = parsed(RollBackIn, request.data)["to"], playbook_get(self.actor, agent)

        def work() -> Response:
            playbook_rollback(self.actor, playbook, version=to)
            return self.answer(playbook_get(self.actor, playbook.agent_id))

        return self.once(request, work)

    @extend_schema(summary="Versions of a playbook, newest first", parameters=[VersionsQuery], responses=VersionsOut)
    @action(detail=True, pagination_class=None)
    def versions(self, request: Request, agent: str) -> Response:
        rows = versions_of(playbook_get(self.actor, agent))
        asked = parsed(VersionsQuery, request.query_params.dict())
        rows = rows.filter(number__lt=asked["before"]) if "before" in asked else rows
        found = list(rows[: asked["limit"] + 1])
        shown = found[: asked["limit"]]
        following = shown[-1].number if len(found) > len(shown) else None
        return Response({"results": VersionOut(shown, many=True).data, "next": following})

    @extend_schema(summary="Differences between two versions", parameters=[DiffQuery], responses=DiffOut)
    @action(detail=True, pagination_class=None)
    def diff(self, request: Request, agent: str) -> Response:
        playbook = playbook_get(self.actor, agent)
        asked = parsed(DiffQuery, request.query_params.dict())
        found = versions_differ(playbook, asked["a"], asked["b"])
        return Response(DiffOut(asked | {"differences": found}).data)

    @extend_schema(
        summary="Put the agent's lessons into production",
        description="Active lessons become items, all of them or none, in one new version. A lesson that says what an"
        " item says is merged with it. Makes the playbook if there is none. 409 while a job changes the agent.",
        request=AdoptIn,
        examples=[ADOPT],
    )
    @action(detail=True, methods=["post"], pagination_class=None)
    def adopt(self, request: Request, agent: str) -> Response:
        given = parsed(AdoptIn, request.data)
        found = agent_get(self.actor, agent)
        named = given.get("experiences")
        chosen = [experience_get(self.actor, key) for key in dict.fromkeys(named)] if named else None
        category = given.get("category", "learnings")
        return self.once(
            request,
            lambda: self.answer(
                playbook_adopt(self.actor, found, chosen, category=category, expected=given.get("version"))
            ),
        )


class ReviewViewSet(ScopedViewSet):
    """Suggested changes; those that wait for a person if nothing else is asked for."""

    queryset = ContextDelta.objects.none()
    tag = "reviews"
    serializer_class = DeltaOut
    filterset_class = ReviewFilters
    lookup_value_converter = "uuid"
    orderings = {"created_at": "created_at", "confidence": "confidence"}
    versioned = ("state", "content", "category")
    idempotent = ("approve", "reject")

    @extend_schema(summary="List open reviews")
    def list(self, request: Request) -> Response:
        """The oldest first. Lessons in quarantine are at `/experiences?status=quarantined`."""
        rows = deltas_visible(self.actor)
        if not request.query_params.get("state"):
            rows = rows.filter(state__in=WAITING)
        return self.page(rows, DeltaOut)

    @extend_schema(summary="One suggested change", responses=ReviewOut)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self._answer(delta_get(self.actor, pk))

    @extend_schema(summary="Approve a suggested change", request=ApproveIn, responses=ReviewOut, examples=[EDITED])
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: UUID) -> Response:
        """As it is, or with another text. The approver vouches for it. In a full playbook an item that is added takes
        the place of the weakest (`replaces`)."""
        given, delta = parsed(ApproveIn, request.data), delta_get(self.actor, pk)
        return self.once(request, lambda: self._answer(delta_approve(self.actor, delta, **given)))

    @extend_schema(summary="Reject a suggested change", request=RejectIn)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: UUID) -> Response:
        given, delta = parsed(RejectIn, request.data), delta_get(self.actor, pk)
        return self.once(request, lambda: self.answer(delta_reject(self.actor, delta, **given)))

    def _answer(self, delta: ContextDelta) -> Response:
        return Response(ReviewOut(delta, context={"actor": self.actor}).data)
