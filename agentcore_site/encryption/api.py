"""REST: encryption of an organisation's texts at rest: state, on, off, new key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.encryption.models import DataKey
from agentcore_site.encryption.selectors import EncryptionState, encryption_state
from agentcore_site.encryption.services import encryption_end, job_stop, key_rotate, texts_move
from agentcore_site.jobs.models import Job
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization


class DataKeyOut(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    holder = serializers.CharField(help_text="What seals it: the site's own key, or a Vault.")
    active = serializers.BooleanField(help_text="Whether it encrypts what is written now.")
    created_at = serializers.DateTimeField()


class CountedRowsOut(serializers.Serializer[Any]):
    table = serializers.CharField()
    version = serializers.IntegerField(help_text="Of the key; 0: in plain.")
    rows = serializers.IntegerField()


class EncryptionOut(Shape):
    on = serializers.BooleanField(help_text="Whether what is written now is encrypted.")
    keys = DataKeyOut(many=True)
    job_id = serializers.UUIDField(allow_null=True, help_text="Of the job that brings what is stored up to date.")
    rows = CountedRowsOut(many=True, help_text="As the last such job counted them.")
    counted_at = serializers.DateTimeField(allow_null=True)

    computed = {"on": lambda one: one.active is not None, "job_id": lambda one: one.job and one.job.pk}


class EncryptionViewSet(ScopedViewSet):
    """Encryption at rest of the organisation's trajectories, traces and executions."""

    queryset = DataKey.objects.none()
    tag = "encryption"
    serializer_class = EncryptionOut
    idempotent = ("rotate", "end", "move", "stop")
    lookup_field = ""  # one of an organisation

    @extend_schema(summary="The state of the organisation's encryption")
    def retrieve(self, request: Request) -> Response:
        return self.answer(self._state())

    @extend_schema(summary="Encrypt with a new key")
    def rotate(self, request: Request) -> Response:
        """Switches encryption on, or takes a new key; a job encrypts with it what is stored."""
        return self._act(request, key_rotate)

    @extend_schema(summary="Switch encryption off")
    def end(self, request: Request) -> Response:
        """A job decrypts what is stored."""
        return self._act(request, encryption_end)

    @extend_schema(
        summary="Bring what is stored up to date",
        description="Where the job was cancelled, or rows came back from an archive.",
    )
    def move(self, request: Request) -> Response:
        return self._act(request, texts_move)

    @extend_schema(summary="Stop the job that encrypts")
    def stop(self, request: Request) -> Response:
        """All rows can be read as before."""
        return self._act(request, job_stop)

    def _state(self) -> EncryptionState:
        return encryption_state(self.actor, current_organization(self.actor))

    def _act(self, request: Request, service: Callable[[Any, Organization], Job]) -> Response:
        def work() -> Response:
            service(self.actor, current_organization(self.actor))
            return self.answer(self._state())

        return self.once(request, work)
