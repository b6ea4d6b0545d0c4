"""From a stored endpoint to the value that the model client takes: keys opened, options checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings

from agentcore_site.outbound import AddressRefused, current_policy
from agentcore_site.vault import Unsealable, opened
from budgets.llm.portkey import config_text, hidden_in, is_written_out, portkey_headers, secrets_in
from budgets.llm.profiles import profile_options
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint
from experiences.models import Agent, EndpointKind, ModelEndpoint
from experiences.privacy import redact

NOUN: Final = "This endpoint"
OPTIONS: Final[Mapping[str, str]] = {
    "timeout_s": "Seconds for one attempt, from the first byte sent to the last one read; 120 by default.",
    "max_retries": "Attempts after the first; 4 by default.",
    "retry_s": "Seconds for all attempts of a call with the waits between them; 300 by default.",
    "concurrency": 'Requests at once by purpose, e.g. {"production": 64, "training": 16}.',
    "default_concurrency": "Requests at once for a purpose that is not named; 64 by default.",
    "per_minute": 'Requests a minute by purpose, e.g. {"training": 600}.',
    "extra": 'Added to each request\'s body, e.g. {"top_p": 0.9}.',
    "pass_fields": "Further fields that callers of the gateway may send to the service, e.g."
    ' ["chat_template_kwargs"]; none by default.',
    "max_tokens_field": "max_tokens or max_completion_tokens, as the service wants it; by default what a caller of the"
    " gateway names, else max_tokens.",
    "leave_out": 'Parameters that are never sent, because the service refuses them, e.g. ["seed", "temperature"].',
    "system_as_user": "true: the words of the system's messages come before those of the user's next one, for a model"
    " without a system role; false by default.",
    "headers": 'Further headers of each request, e.g. {"HTTP-Referer": "https://example.org"}; no keys.',
    "key_header": "Header of the key: authorization (default), api-key (Azure) or x-api-key.",
    "capture_tokens": "true: keeps ids and log-probabilities of sampled tokens with each step, where the service gives"
    " them, as vLLM and SGLang do; false by default.",
    "gpu_usd_per_hour": "Of a model server: dollars for an hour of training, charged by the second; 0 by default.",
    "prompt_overhead": "Tokens that the service's own template may add to a prompt; 0 by default.",
    "portkey_provider": "Portkey: the provider, e.g. openai.",
    "portkey_config": "Portkey: the id of a saved config, e.g. pc-retry-1a2b3c.",
    "portkey_custom_host": "Portkey: the address behind the gateway.",
    "portkey_metadata": 'Portkey: texts that its logs keep with each call, e.g. {"team": "search"}.',
}
# Of paid calls: answers to users, rollouts that learn, rollouts that measure (suites too), questions to the model that
# reflects, changes to a playbook, and tries of an endpoint or an agent.
PURPOSES: Final = ("production", "training", "evaluation", "reflection", "evolution", "test")
OWN_HEADERS: Final = frozenset(
    {
        *("authorization", "api-key", "x-api-key", "content-type", "content-length", "transfer-encoding", "accept"),
        *("host", "connection", "cookie", "expect", "upgrade", "te", "trailer", "traceparent", "accept-encoding"),
    }
)
GPU_PRICE: Final = "gpu_usd_per_hour"
PORTKEY: Final = ("portkey_provider", "portkey_config", "portkey_custom_host", "portkey_metadata")


class BadEndpoint(ValueError):
    """The endpoint can't be used as it is; ``field`` says where to look."""

    def __init__(self, message: str, field: str = "options") -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Keys:
    """An endpoint's secrets. ``config`` is a Portkey config as JSON, ``by_purpose`` keys in place of ``api``."""

    api: Secret
    gateway: Secret
    virtual: Secret
    config: Secret
    by_purpose: Mapping[str, Secret] = field(default_factory=dict, kw_only=True)


def endpoint_value(endpoint: ModelEndpoint | None, model: str = "") -> Endpoint:
    """The client's endpoint value. Without a row: the endpoint of the environment (``LLM_BASE_URL`` …).

    Raises:
        BadEndpoint: there is none, it names no model, a key can't be opened, or an option is wrong.
    """
    if endpoint is None:
        return _of_environment(model)
    if endpoint.archived_at is not None:
        raise BadEndpoint(f"The endpoint {endpoint.name} is archived. Choose another.", "endpoint")
    options = dict(endpoint.options or {})
    options_check(options)
    portkey = {name: options.pop(name) for name in PORTKEY if name in options}
    options.pop(GPU_PRICE, None)
    portkey["headers"] = options.pop("headers", {})
    try:
        sealed = (endpoint.api_key, endpoint.gateway_key, endpoint.virtual_key, endpoint.gateway_config)
        by_purpose = {purpose: Secret(opened(one)) for purpose, one in endpoint.purpose_keys.items()}
        keys = Keys(*(Secret(opened(one)) for one in sealed), by_purpose=by_purpose)
    except Unsealable as error:
        raise BadEndpoint(str(error), "api_key") from None
    return _made(endpoint.kind, endpoint.base_url, model or endpoint.model, keys, portkey, options)


def options_check(options: Mapping[str, Any]) -> None:
    """Options are shown to all who may see the endpoint, so that nothing secret may be among them.

    Raises:
        BadEndpoint: an option is unknown, of another shape, or holds what looks like a key.
    """
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise BadEndpoint(f"{NOUN} knows no option {unknown[0]!r}. Known: {', '.join(OPTIONS)}.")
    config = options.get("portkey_config", "")
    if not isinstance(config, str) or is_written_out(config):
        raise BadEndpoint(
            "portkey_config is the id of a saved config. A config that is written out may hold keys: give it as"
            " gateway_config (the field Portkey config), where it is kept sealed."
        )
    rate = options.get(GPU_PRICE, 0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1e6:
        raise BadEndpoint(f"{GPU_PRICE} is a number of dollars from 0.")
    headers_check(options.get("headers", {}))
    for name in ("portkey_provider", "portkey_custom_host"):
        if not isinstance(options.get(name, ""), str):
            raise BadEndpoint(f"{name} is a text.")
    metadata = options.get("portkey_metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):
        raise BadEndpoint('portkey_metadata is an object of texts, e.g. {"team": "search"}.')
    if host := options.get("portkey_custom_host", ""):
        try:  # a gateway of the operator's own would be asked to call it from inside
            current_policy().target(host)
        except AddressRefused as error:
            raise BadEndpoint(f"portkey_custom_host: {error}") from None
    for name, value in options.items():
        if next(secrets_in(value, name=name), None) is not None:
            raise BadEndpoint(
                f"{name} holds what looks like a key, and options are shown to others. Give it as the endpoint's key,"
                " or as Portkey's key, virtual key or config: those are kept sealed."
            )


def headers_check(headers: Any) -> None:
    """Raises BadEndpoint: no object of texts, or a header that the client sets."""
    if not isinstance(headers, dict) or not all(isinstance(one, str) for one in headers.values()):
        raise BadEndpoint('headers is an object of texts, e.g. {"HTTP-Referer": "https://example.org"}.')
    if ours := sorted(name for name in headers if name.lower() in OWN_HEADERS or name.lower().startswith("x-portkey")):
        raise BadEndpoint(f"headers must not set {ours[0]}: the client does, or a field of its own takes it.")


def uses_model_server(agent: Agent) -> bool:
    """Whether the agent's model can be trained: its endpoint is a model server."""
    return agent.endpoint is not None and agent.endpoint.kind == EndpointKind.WEIGHTS


def endpoint_of_agent(agent: Agent, model: str = "") -> Endpoint:
    """The endpoint of the agent's own model, or of another ``model`` there. Raises BadEndpoint."""
    return endpoint_value(agent.endpoint, model or agent.model)


def has_reflector(agent: Agent) -> bool:
    """Whether another model than the agent's own reflects on what it does."""
    return agent.reflector_id is not None or bool(agent.reflector_model)


def endpoint_of_reflector(agent: Agent) -> Endpoint:
    """Endpoint of the model that reflects on the agent's attempts. Address: the reflector's, else the agent's. Model:
    the reflector's, else the endpoint's, else the agent's.

    Raises:
        BadEndpoint: it can't be used.
    """
    if agent.reflector is not None:
        return endpoint_value(agent.reflector, agent.reflector_model)
    return endpoint_value(agent.endpoint, agent.reflector_model or agent.model)


def _of_environment(model: str) -> Endpoint:
    if not settings.LLM_BASE_URL:
        raise BadEndpoint("Choose a model endpoint, or set LLM_BASE_URL for agents that name none.", "endpoint")
    config, provider, virtual = settings.PORTKEY_CONFIG, settings.PORTKEY_PROVIDER, settings.PORTKEY_VIRTUAL_KEY
    kind = EndpointKind.PORTKEY if settings.PORTKEY_API_KEY or provider or config or virtual else EndpointKind.OPENAI
    portkey, inline = {"portkey_provider": provider, "portkey_config": config}, ""
    if is_written_out(config):
        del portkey["portkey_config"]
        try:
            inline = config_text(config)
        except ValueError as error:
            raise BadEndpoint(f"PORTKEY_CONFIG: {error}", "endpoint") from None
    keys = Keys(*map(Secret, (settings.LLM_API_KEY, settings.PORTKEY_API_KEY, virtual, inline)))
    return _made(kind, settings.LLM_BASE_URL, model or settings.LLM_MODEL, keys, portkey, {})


def _made(
    kind: str, base_url: str, model: str, keys: Keys, portkey: Mapping[str, Any], options: dict[str, Any]
) -> Endpoint:
    if not model:
        raise BadEndpoint("Name a model, on the agent or on its endpoint.", "model")
    headers: dict[str, str | Secret] = dict(portkey.get("headers", {}))
    if kind == EndpointKind.PORTKEY:
        headers |= portkey_headers(
            api_key=keys.gateway,
            provider=portkey.get("portkey_provider", ""),
            config=portkey.get("portkey_config", ""),
            inline_config=keys.config,
            virtual_key=keys.virtual,
            custom_host=portkey.get("portkey_custom_host", ""),
            metadata=portkey.get("portkey_metadata"),
        )
    if kind == EndpointKind.WEIGHTS:
        options = {"capture_tokens": True} | options
    options = profile_options(base_url, model, kind) | options
    try:
        return Endpoint(
            base_url,
            model,
            api_key=keys.api,
            purpose_keys=keys.by_purpose,
            headers=headers,
            kind=kind,  # type: ignore[arg-type]
            redact=redact,
            hidden=hidden_in(keys.config.reveal()),
            **options,
        )
    except (TypeError, ValueError) as error:
        where = next((name for name in ("base_url", "api_key") if name in str(error)), "options")
        where = "purpose_keys" if "the key of " in str(error) else where
        raise BadEndpoint(str(error), where) from error
