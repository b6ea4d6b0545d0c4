"""Values of calls to a model and of its answers. Frozen values, no Django."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypedDict

from agentcore_site.outbound import AddressRefused, parsed
from budgets.llm.secret import Secret, masked
from budgets.meter_port import Bill
from budgets.pricing import Usage

Kind = Literal["openai", "portkey", "openrouter", "vllm", "ollama", "weights"]
KINDS: Final = ("openai", "portkey", "openrouter", "vllm", "ollama", "weights")

# What the client itself says in each request: an ``extra`` that overrode it could break the bound of the hold.
OURS: Final = frozenset(
    {"model", "messages", "tools", "max_tokens", "max_completion_tokens", "stream", "stream_options"}
)
# What a hold, which is of the model's tokens at its price, would not cover.
DEARER: Final[Mapping[str, str]] = {
    "n": "several answers are billed",
    "best_of": "several answers are billed",
    "service_tier": "another tier has another price",
    "web_search_options": "searches are billed by the call",
    "plugins": "they are billed by the call",
    "models": "another model may answer, at another price",
    "modalities": "audio and images have a price of their own",
    "audio": "audio has a price of its own",
    "prediction": "what is predicted wrongly is billed too",
}
# Never a caller's of the gateway: the endpoint settles where a call goes and who pays, the hold how much comes back.
NEVER_PASSED: Final[Mapping[str, str]] = {
    **DEARER,
    **dict.fromkeys(
        (
            *("api_base", "base_url", "api_key", "api_version", "api_type", "organization", "custom_llm_provider"),
            *("extra_headers", "headers", "extra_body", "extra_query", "fallbacks", "context_window_fallbacks"),
            *("provider", "route", "transforms", "preset", "mcp_servers", "server_url", "container", "user_api_key"),
        ),
        "the endpoint settles where a call goes and who pays for it",
    ),
    **dict.fromkeys(
        (
            *(
                "thinking",
                "reasoning.max_tokens",
                "thinking_budget",
                "budget_tokens",
                "max_output_tokens",
                "max_new_tokens",
            ),
            *(
                "num_predict",
                "num_ctx",
                "min_tokens",
                "ignore_eos",
                "num_return_sequences",
                "use_beam_search",
                "options",
            ),
        ),
        "the length of an answer is max_completion_tokens alone",
    ),
    **dict.fromkeys(("chat_template", "template", "add_generation_prompt"), "a template is the service's own"),
    **dict.fromkeys(("timeout", "num_retries", "keep_alive", "priority"), "the endpoint's settings say so"),
}
LENGTH_FIELDS: Final = ("", "max_tokens", "max_completion_tokens")
KEY_HEADERS: Final = ("authorization", "api-key", "x-api-key")
NEEDED: Final = frozenset(
    {"model", "messages", "tools", "stream", "messages.role", "messages.content", *LENGTH_FIELDS[1:]}
)
MEGABYTE: Final = 2**20


class AnswerOptions(TypedDict, total=False):
    """Fields of a call that shape its answer; absent ones, and None, are not sent."""

    response_format: Mapping[str, Any] | None
    stop: Sequence[str] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None


class RequestOptions(AnswerOptions, total=False):
    """All optional fields of a call."""

    tools: Sequence[ToolSpec] | None
    temperature: float | None
    seed: int | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants run.

    ``arguments`` is the parsed JSON object. What is no JSON object stays in ``raw`` and ``arguments_error`` says why;
    ``arguments`` is empty then. ``name`` is what the model said: the runtime decides whether there is such a tool.
    ``opaque``: further fields, which only the service understands and wants back as they came.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    raw: str = ""
    arguments_error: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``role`` is "system", "user", "assistant" or "tool" (then with ``tool_call_id``).

    ``opaque``: further fields of an answer, which go back to the service as they came, and the content of a message
    with images, as parts of a chat completion; they win over ours.
    """

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; ``parameters`` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens and cost as the answer reports them; None where it reports nothing that can be believed."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int | None = None
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    audio_output_tokens: int = 0
    image_output_tokens: int = 0

    def tokens(self, input_tokens: int, output_tokens: int) -> Usage:
        """As usage that can be priced, with these totals."""
        parts = {one.name: getattr(self, one.name) for one in fields(self) if one.name.endswith("_tokens")}
        return Usage(**(parts | {"input_tokens": input_tokens, "output_tokens": output_tokens}))


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was read from the wire. ``notes`` says what was odd about it and what was made of that."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    reasoning: str = ""
    model: str = ""
    id: str = ""
    usage: ReportedUsage = ReportedUsage()
    notes: tuple[str, ...] = ()
    tokens: AnswerTokens | None = None
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """The tokens of a call as the server sampled them: ids of the prompt, ids of the answer and the log-probability of
    each of those, in nats."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer and what it cost.

    ``cost_micros`` is that of the successful attempt (= ``bill.amount_micros``); ``model`` is the provider's name
    of what answered; ``request_id`` is the provider's; ``attempts`` counts the requests that were sent and
    ``spent_micros`` is what they cost together, failed ones included.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage
    cost_micros: int
    model: str
    latency_ms: int
    request_id: str
    bill: Bill
    attempts: int = 1
    spent_micros: int = 0
    reasoning: str = ""
    notes: tuple[str, ...] = ()
    tokens: AnswerTokens | None = None
    opaque: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> Message:
        """The answer as the next request repeats it."""
        return Message("assistant", self.text, tool_calls=self.tool_calls, opaque=self.opaque)


def left_out_check(names: object) -> None:
    """Raises ValueError: no list of names, or a call would lose what makes it a call or bounds its cost."""
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) and one for one in names):
        raise ValueError('leave_out is a list of names, e.g. ["seed", "temperature"].')
    if needed := sorted(set(names) & NEEDED):
        raise ValueError(f"leave_out must not name {needed[0]}: without it there is no call, or no bound of its cost.")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible address and how to treat it. Raises ValueError where a field can't be right.

    ``base_url`` is the part before ``/chat/completions``. ``api_key``, ``purpose_keys`` and the values of ``headers``
    are never printed. Calls of a purpose in ``purpose_keys`` send that key in place of ``api_key``, so that a provider
    limits training and production each by itself.
    ``timeout_s`` covers one attempt whole, from the first byte sent to the last one read; ``retry_s`` covers all
    attempts of a call with the waits between them, but not those for a place at the gate. ``max_retries`` is the
    number of attempts after the first.
    ``concurrency`` and ``per_minute`` limit requests per purpose, each purpose with slots of its own;
    a purpose that is not named has ``default_concurrency`` and no rate limit. ``extra`` is added to each request's
    body. ``prompt_overhead`` is added to the bound of each prompt's tokens, for templates that say more than ours.
    ``redact`` takes personal data out of what a provider wrote, which may quote the prompt, before it ends in a
    message; ``pass_fields`` are fields that callers of the gateway may send beside those that its kind always takes;
    ``hidden`` are secrets within ``headers`` that no message may show either. ``capture_tokens`` asks for the
    ids and log-probabilities of what was sampled, as vLLM and SGLang give them.

    Four fields fit a request to its service (``budgets.llm.fitting``). ``leave_out`` names parameters that are never
    sent. ``system_as_user`` puts system messages into the user's next one. ``max_tokens_field`` names the bound of an
    answer ("": the caller's own name, else max_tokens). ``key_header`` names the header of the key.
    """

    base_url: str
    model: str
    api_key: Secret = field(default_factory=lambda: Secret(""))
    purpose_keys: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    kind: Kind = "openai"
    timeout_s: float = 120.0
    connect_s: float = 10.0
    max_retries: int = 4
    retry_s: float = 300.0
    default_concurrency: int = 64
    concurrency: Mapping[str, int] = field(default_factory=dict)
    per_minute: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    max_answer_bytes: int = MEGABYTE
    max_tokens_field: Literal["", "max_tokens", "max_completion_tokens"] = ""
    leave_out: Sequence[str] = ()
    system_as_user: bool = False
    key_header: Literal["authorization", "api-key", "x-api-key"] = "authorization"
    prompt_overhead: int = 0
    redact: Callable[[str], str] = field(default=str, repr=False)
    hidden: tuple[Secret, ...] = field(default=(), repr=False)
    capture_tokens: bool = False
    pass_fields: Sequence[str] = ()

    def __post_init__(self) -> None:
        try:
            url = parsed(self.base_url)
        except AddressRefused as error:
            raise ValueError(f"base_url: {error}") from None
        if url.raw_fragment:
            raise ValueError("base_url must hold no fragment (#…).")
        for name in ("capture_tokens", "system_as_user"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is true or false.")
        for name, known in (("max_tokens_field", LENGTH_FIELDS), ("key_header", KEY_HEADERS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(filter(None, known))}.")
        left_out_check(self.leave_out)
        if not isinstance(self.pass_fields, list | tuple) or not all(isinstance(one, str) for one in self.pass_fields):
            raise ValueError('pass_fields is a list of names, e.g. ["chat_template_kwargs"].')
        if never := sorted((NEVER_PASSED.keys() | OURS) & set(self.pass_fields)):
            why = NEVER_PASSED.get(never[0], "it is passed already, or set by the client")
            raise ValueError(f"pass_fields must not name {never[0]}: {why}.")
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}.")
        if taken := OURS & self.extra.keys():
            raise ValueError(f"extra must not set {', '.join(sorted(taken))}: the client does.")
        if dearer := sorted(DEARER.keys() & self.extra.keys()):
            raise ValueError(
                f"extra must not set {dearer[0]}: {DEARER[dearer[0]]}, so that a call could cost more than what is held"
                " for it. Leave it out."
            )
        if min(self.timeout_s, self.connect_s, self.max_answer_bytes, self.default_concurrency) <= 0:
            raise ValueError("Time limits, the answer's size and concurrency must be above 0.")
        if any(limit <= 0 for limits in (self.concurrency, self.per_minute) for limit in limits.values()):
            raise ValueError("concurrency and per_minute must be above 0.")
        keys = {"api_key": self.api_key} | {f"the key of {name}": key for name, key in self.purpose_keys.items()}
        for name, value in {**self.headers, **keys}.items():
            text = value.reveal() if isinstance(value, Secret) else value
            # The usual cause is the newline at the end of a key's file; a library's own message would show the key.
            if (
                not (name.isascii() and name.isprintable() and text.isascii() and text.isprintable())
                or text != text.strip()
            ):
                raise ValueError(f"{name} holds a space at an end, a control character or no ASCII.")
        if min(self.max_retries, self.retry_s, self.prompt_overhead) < 0:
            raise ValueError("max_retries, retry_s and prompt_overhead must not be negative.")

    @property
    def url(self) -> str:
        """Address of the completions; a query of ``base_url`` (Azure's ``api-version``) stays at the end."""
        path, mark, query = self.base_url.partition("?")
        return f"{path.rstrip('/')}/chat/completions{mark}{query}"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        headers = (header for header in self.headers.values() if isinstance(header, Secret))
        return (self.api_key, *self.purpose_keys.values(), *headers, *self.hidden)

    def key_of(self, purpose: str) -> Secret:
        """The key that calls of ``purpose`` send."""
        return self.purpose_keys.get(purpose) or self.api_key

    def safe(self, text: str) -> str:
        """A provider's words without our secrets, anything like a key, and personal data."""
        return self.redact(masked(text, self.secrets))
