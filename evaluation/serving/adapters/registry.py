"""Serving adapters by name. The built-in ones are registered here; other packages' come through entry points."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.registry import Registry
from evaluation.serving.adapters.base import ServingAdapter
from evaluation.serving.adapters.gateway_adapter import BuiltInGateway
from evaluation.serving.adapters.tensorzero import TensorZero
from evaluation.serving.adapters.webhook import ServingWebhook

DEFAULT: Final = "gateway"

serving_adapters: Registry[ServingAdapter] = Registry("serving adapter", entry_point_group="agentcore.serving_adapters")
serving_adapters.register(DEFAULT)(BuiltInGateway())
serving_adapters.register("tensorzero")(TensorZero())
serving_adapters.register("webhook")(ServingWebhook())
