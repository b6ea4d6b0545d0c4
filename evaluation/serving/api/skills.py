"""REST: skills that arrive, and the keys by which organisations sign theirs."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import FileParser, Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.models import Release
from evaluation.serving.releases.skill_imports import STATUSES, skill_import, skill_keys, skill_report
from experiences.lessons.services.importing import ProposedText
from experiences.models.agent_lookup import agent_get


class SkillKeyOut(serializers.Serializer[Any]):
    organization_id = serializers.UUIDField()
    organization = serializers.CharField()
    key = serializers.CharField(help_text="Ed25519, in base64.")
    fingerprint = serializers.CharField(help_text="SHA-256 of the key, in hexadecimal digits.")


class SkillFile(Strict):
    file = serializers.FileField(allow_empty_file=True, help_text="A skill's folder as a zip file, or its SKILL.md.")
    key = serializers.CharField(
        max_length=64,
        required=False,
        allow_blank=True,
        help_text="The public key, or its fingerprint, that has to have signed it.",
    )


class SkillImportFile(SkillFile):
    agent = serializers.CharField(max_length=100, help_text="Id or slug of the agent that is to have its lessons.")


class SkillOut(serializers.Serializer[Any]):
    status = serializers.ChoiceField(
        choices=STATUSES,
        help_text="`valid`: as it was signed; `other key`: as another key than the given one signed it.",
    )
    faults = serializers.ListField(child=serializers.CharField(), help_text="What was changed, by file.")
    fingerprint = serializers.CharField(help_text="Of the key that signed it; empty: none did.")
    known = serializers.BooleanField(
        allow_null=True, help_text="Whether that key is the given one or your organisation's; null: not valid."
    )
    signer = serializers.CharField(help_text="Your organisation that signed it; empty: another one did, or none.")
    sha256 = serializers.CharField(source="skill.sha256")
    name = serializers.CharField(source="skill.name")
    description = serializers.CharField(source="skill.description")
    facts = serializers.DictField(
        source="skill.facts", child=serializers.CharField(), help_text="The signer's figures. No evidence here."
    )
    prompt = serializers.CharField(source="skill.prompt", help_text="Is not imported.")
    lessons = serializers.ListField(source="skill.lessons", child=serializers.CharField())
    unread = serializers.ListField(
        source="skill.unread", child=serializers.CharField(), help_text="Files that are neither read nor imported."
    )


class LeftOutOut(serializers.Serializer[Any]):
    text = serializers.CharField()
    reason = serializers.CharField(source="left_out")


class FlaggedOut(serializers.Serializer[Any]):
    handle = serializers.CharField()
    reason = serializers.CharField(source="suspicion")


class SkillImportedOut(SkillOut):
    quarantined = serializers.ListField(
        child=serializers.CharField(), help_text="Handles of new lessons: a person approves or refuses each."
    )
    unchanged = serializers.IntegerField(help_text="The agent had them already, in any status.")
    flagged = FlaggedOut(many=True, help_text="New lessons that look like an attempt to steer a model.")
    left_out = LeftOutOut(many=True, help_text="Texts that can't be lessons of this agent.")


class SkillViewSet(ScopedViewSet):
    queryset = Release.objects.none()
    tag = "releases"
    serializer_class = SkillOut
    idempotent = ("bring",)

    @extend_schema(summary="Public keys of your organisations", responses=SkillKeyOut(many=True))
    @action(detail=False, pagination_class=None)
    def keys(self, request: Request) -> Response:
        """By which they sign skills; give them to who receives one."""
        return Response(SkillKeyOut(skill_keys(self.actor), many=True).data)

    @extend_schema(summary="Verify a skill", request={"multipart/form-data": SkillFile}, responses=SkillOut)
    @action(detail=False, methods=["post"], pagination_class=None, parser_classes=[FileParser])
    def verify(self, request: Request) -> Response:
        """Compares a skill with its signature, and names the signer. Nothing of the file is stored or executed."""
        given = _given(SkillFile, request)
        return self.answer(skill_report(self.actor, given["file"].read(), key=given.get("key", "")))

    @extend_schema(
        summary="Import the lessons of a skill",
        description="Each becomes a lesson in quarantine: no rollout sees it before a person approves it. What was"
        " measured elsewhere does not count; the agent's next job measures it. What the agent has already stays.",
        request={"multipart/form-data": SkillImportFile},
        responses=SkillImportedOut,
    )
    @action(detail=False, methods=["post"], url_path="import", pagination_class=None, parser_classes=[FileParser])
    def bring(self, request: Request) -> Response:
        given = _given(SkillImportFile, request)
        agent = agent_get(self.actor, given["agent"])
        data, key = given["file"].read(), given.get("key", "")

        def work() -> Response:
            done = skill_import(self.actor, agent, data, key=key)
            new = [one for one in done.proposed if one.is_new]
            return Response(
                {
                    **SkillOut(done.report).data,
                    "quarantined": [one.handle for one in new],
                    "unchanged": sum(one.known for one in done.proposed),
                    "flagged": FlaggedOut([one for one in new if one.suspicion], many=True).data,
                    "left_out": LeftOutOut([one for one in done.proposed if _left(one)], many=True).data,
                }
            )

        return self.once(request, work)


def _given(form: type[Strict], request: Request) -> dict[str, Any]:
    """Raises ValidationError. A request without a body has a plain dictionary."""
    data: Any = request.data
    return parsed(form, data.dict() if isinstance(data, QueryDict) else data)


def _left(one: ProposedText) -> bool:
    return bool(one.left_out) and not one.known
