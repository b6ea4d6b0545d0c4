"""Addresses under ``/internal/ace/``."""

from __future__ import annotations

from typing import Any

from django.urls import path

from experiences.playbooks.ace import views

POST: dict[str, Any] = {"post": "create"}
GET: dict[str, Any] = {"get": "retrieve"}
DELETE: dict[str, Any] = {"delete": "destroy"}

urlpatterns = [
    path("playbooks", views.ServicePlaybookViewSet.as_view(POST), name="playbooks"),
    path("playbooks/<str:agent>", views.ServicePlaybookViewSet.as_view(DELETE), name="playbook"),
    path("playbooks/<str:agent>/context", views.ContextViewSet.as_view(GET), name="context"),
    path("playbooks/<str:agent>/evolve", views.EvolveViewSet.as_view(POST), name="evolve"),
    path("playbooks/<str:agent>/status", views.StatusViewSet.as_view(GET), name="status"),
    path("traces", views.TraceViewSet.as_view(POST), name="traces"),
]
