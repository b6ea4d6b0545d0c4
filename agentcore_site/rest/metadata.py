"""Answers to OPTIONS. A module of its own: Django REST framework imports it while its views are made."""

from __future__ import annotations

from typing import Any

from rest_framework.metadata import BaseMetadata
from rest_framework.request import Request


class AllowedMethods(BaseMetadata):
    """The answer to OPTIONS: the methods of the address. Its input is described by /api/v1/schema/."""

    def determine_metadata(self, request: Request, view: Any) -> dict[str, list[str]]:
        return {"methods": list(view.allowed_methods)}
