"""From a stored endpoint to the value that the model client takes: keys opened, options checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings

from agentcore_site.vault import Unsealable, opened
from budgets.llm.portkey import portkey_headers
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint
from experiences.models import Agent, EndpointKind, ModelEndpoint

NOUN: Final = "This endpoint"
OPTIONS: Final[Mapping[str, str]] = {
    "timeout_s": "Seconds for one attempt, from the first byte sent to the last one read; 120 by default.",
    "max_retries": "Attempts after the first; 4 by default.",
    "retry_s": "Seconds for all attempts of a call with the waits between them; 300 by default.",
    "concurrency": 'Requests at once by purpose, e.g. {"production": 64, "training": 16}.',
    "default_concurrency": "Requests at once for a purpose that is not named; 64 by default.",
    "per_minute": 'Requests a minute by purpose, e.g. {"training": 600}.',
    "extra": 'Added to each request\'s body, e.g. {"top_p": 0.9}.',
    "max_tokens_field": "max_tokens (default) or max_completion_tokens, as the service wants it.",
    "prompt_overhead": "Tokens that the service's own template may add to a prompt; 0 by default.",
    "portkey_provider": "Portkey: the provider, e.g. openai.",
    "portkey_config": "Portkey: the id of a saved config.",
    "portkey_custom_host": "Portkey: the address behind the gateway.",
}
OWN: Final = ("portkey_provider", "portkey_config", "portkey_custom_host")


class BadEndpoint(ValueError):
    """The endpoint can't be used as it stands; ``field`` says where to look."""

    def __init__(self, message: str, field: str = "options") -> None:
        super().__init__(message)
        self.field = field


def endpoint_value(endpoint: ModelEndpoint | None, model: str = "") -> Endpoint:
    """What the client takes. Without an endpoint: the one of the environment (``LLM_BASE_URL`` …).

    Raises:
        BadEndpoint: there is none, it names no model, a key can't be opened, or an option is wrong.
    """
    if endpoint is None:
        return _of_environment(model)
    if endpoint.archived_at is not None:
        raise BadEndpoint(f"The endpoint {endpoint.name} is archived. Choose another.", "endpoint")
    options = dict(endpoint.options or {})
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise BadEndpoint(f"{NOUN} knows no option {unknown[0]!r}. Known: {', '.join(OPTIONS)}.")
    own = {name: str(options.pop(name)) for name in OWN if name in options}
    try:
        key, gateway = Secret(opened(endpoint.api_key)), Secret(opened(endpoint.gateway_key))
    except Unsealable as error:
        raise BadEndpoint(str(error), "api_key") from None
    return _made(endpoint.kind, endpoint.base_url, model or endpoint.model, key, gateway, own, options)


def endpoint_of_agent(agent: Agent) -> Endpoint:
    """Raises BadEndpoint."""
    return endpoint_value(agent.endpoint, agent.model)


def _of_environment(model: str) -> Endpoint:
    if not settings.LLM_BASE_URL:
        raise BadEndpoint("Choose a model endpoint, or set LLM_BASE_URL for agents that name none.", "endpoint")
    portkey = bool(settings.PORTKEY_API_KEY or settings.PORTKEY_PROVIDER or settings.PORTKEY_CONFIG)
    own = {"portkey_provider": settings.PORTKEY_PROVIDER, "portkey_config": settings.PORTKEY_CONFIG} if portkey else {}
    kind = EndpointKind.PORTKEY if portkey else EndpointKind.OPENAI
    key, gateway = Secret(settings.LLM_API_KEY), Secret(settings.PORTKEY_API_KEY)
    return _made(kind, settings.LLM_BASE_URL, model or settings.LLM_MODEL, key, gateway, own, {})


def _made(
    kind: str, base_url: str, model: str, key: Secret, gateway: Secret, own: Mapping[str, str], options: dict[str, Any]
) -> Endpoint:
    if not model:
        raise BadEndpoint("Name a model, on the agent or on its endpoint.", "model")
    headers: dict[str, str | Secret] = {}
    if kind == EndpointKind.PORTKEY:
        headers = portkey_headers(
            api_key=gateway or None,
            provider=own.get("portkey_provider", ""),
            config=own.get("portkey_config") or None,
            custom_host=own.get("portkey_custom_host", ""),
        )
    try:
        return Endpoint(base_url, model, api_key=key, headers=headers, kind=kind, **options)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        field = "base_url" if "base_url" in str(error) else "api_key" if "api_key" in str(error) else "options"
        raise BadEndpoint(str(error), field) from error
