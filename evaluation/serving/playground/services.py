"""Runs of the playground: each answer is asked for once, however often its page is loaded."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.core import signing
from django.core.cache import cache
from redis.exceptions import RedisError

from agentcore_site.audit.services import record
from agentcore_site.ids import uuid7
from agentcore_site.lib.errors import Conflict, Invalid, Unavailable
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require, require_somewhere
from evaluation.serving.gateway.served_models import ServedModel
from evaluation.serving.playground.candidates import Candidate, candidate_label, candidate_model
from evaluation.serving.playground.trials import Trial

MOST: Final = 4  # candidates of a run
SALT: Final = "playground"
SECONDS: Final = 24 * 3600  # for which a page can ask


@dataclass(frozen=True)
class TrialQuestion:
    """``most_micros``: the limit of each answer's cost. ``max_tokens``: of each answer."""

    text: str
    system: str
    max_tokens: int
    most_micros: int

    @property
    def body(self) -> dict[str, object]:
        return body_of([{"role": "user", "content": self.text}], system=self.system, max_tokens=self.max_tokens)


def body_of(messages: Sequence[Mapping[str, object]], *, system: str, max_tokens: int) -> dict[str, object]:
    """The request of these messages, after a system message where there is one."""
    said = [{"role": "system", "content": system}] if system else []
    return {"model": SALT, "messages": [*said, *messages], "max_tokens": max_tokens, "stream": True}


def run_token(actor: Actor) -> str:
    """The names of the answers of one run, for this person alone."""
    return signing.dumps([actor.user.pk, *(str(uuid7()) for _ in range(MOST))], salt=SALT)


def run_calls(actor: Actor, token: str) -> Sequence[uuid.UUID]:
    """The names of the answers of a run, by their places.

    Raises:
        Invalid: the token is another person's, or a day old.
    """
    try:
        user, *names = signing.loads(token, salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        user, names = None, []
    if user != actor.user.pk:
        raise Invalid("This page was open for more than a day. Ask again.")
    return [uuid.UUID(name) for name in names]


def run_begin(actor: Actor, candidates: Sequence[Candidate], question: TrialQuestion, run: str) -> list[str]:
    """Checks a run before its first call. ``run``: its token. Returns the candidates' labels.

    Raises:
        Missing, Forbidden: a candidate is not the actor's, or the actor may not call models.
        Invalid: a candidate can't be called (``fields`` says which), or the token is not valid.
    """
    require_somewhere(actor, "gateway.call")
    run_calls(actor, run)
    models = candidate_models(actor, candidates)
    limits = {"limit_usd": dollars(question.most_micros), "max_tokens": question.max_tokens}
    record(
        actor,
        "playground.asked",
        organization=models[-1].organization_id,
        after={"candidates": [one.value for one in candidates], **limits},
    )
    return [candidate_label(model, one) for model, one in zip(models, candidates, strict=True)]


def candidate_models(actor: Actor, candidates: Sequence[Candidate]) -> list[ServedModel]:
    """The models or releases of a run's candidates.

    Raises:
        Missing, Forbidden, Invalid: as ``run_begin``.
    """
    found = []
    for place, candidate in enumerate(candidates, 1):
        try:
            model = candidate_model(actor, candidate)
        except Invalid as error:
            raise Invalid(error.message, fields={f"candidate_{place}": error.message}) from error
        require(actor, "gateway.call", model.organization_id)
        found.append(model)
    return found


def run_trial(actor: Actor, candidate: Candidate, question: TrialQuestion, run: str, place: int) -> Trial:
    """The call of the candidate at this place of a run. From now on it counts as made.

    Raises:
        Missing, Forbidden, Invalid: as ``run_begin``.
        Conflict: this answer was asked for before.
        Unavailable: it can't be known whether it was.
    """
    model = candidate_model(actor, candidate)
    require(actor, "gateway.call", model.organization_id)
    call = run_calls(actor, run)[place]
    ask_once(call)
    return Trial(call, model, question.body, question.most_micros, candidate.prompt)


def ask_once(call: uuid.UUID) -> None:
    """From now on this call counts as made.

    Raises:
        Conflict, Unavailable: as ``run_trial``.
    """
    try:
        first = cache.add(cache_key(call), 1, SECONDS)
    except RedisError as error:
        raise Unavailable(
            "Redis is away, so it can't be known whether this was asked before. Ask again later."
        ) from error
    if not first:
        raise Conflict("This answer was asked for before, and is not paid for twice. Press Ask to ask again.")


def cache_key(call: uuid.UUID) -> str:
    return f"{SALT}:{call}"
