"""Keys with their spending, as programs read them."""

from __future__ import annotations

from rest_framework import serializers

from agentcore_site.identity.presenters import ApiKeyOut
from agentcore_site.rest.money import Usd


class KeySpendingOut(ApiKeyOut):
    owner = serializers.CharField(source="user.username")
    spent_usd = Usd(source="spent_micros", help_text="In the requested month, else in the current one (UTC).")
    calls = serializers.IntegerField(help_text="In the same month.")
