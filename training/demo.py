"""The demo's people and agent: what `make run` and `manage.py seed_demo` make."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import transaction

from agentcore_site import env
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization
from agentcore_site.tenancy.roles import Role
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.agents.services.demo_agent import demo_agent
from experiences.agents.services.endpoints import endpoint_create, endpoint_update
from experiences.models import Agent, Dataset, ModelEndpoint
from training.weights.one_digit_sums import SYSTEM_PROMPT, sums_rows
from training.weights.random_model import LETTERS, RANDOM

PEOPLE: Final = {
    "olivia": Role.OPERATOR,
    "dan": Role.DEVELOPER,
    "adam": Role.ADMIN,
    "stella": Role.STAKEHOLDER,
}
ORGANIZATION, OTHER = ("Acme Research", "acme"), ("Elsewhere Ltd", "elsewhere")
LOOP_SLUG: Final = "helper"
WEIGHTS_SLUG: Final = "letters"
SUMS_SLUG: Final = "sums"
SUMS_NAME: Final = "Sums"
FORMER_ENDPOINT_NAME: Final = "Door of weights"  # of demos that an earlier release made
ENDPOINT_NAME, LETTERS_NAME = "Model server", "Letters"


def passwords_file() -> Path:
    return env.data_dir() / "secrets" / "demo-users.txt"


@transaction.atomic
def seed() -> Agent:
    """Makes (or finds) two organisations, the people of both, and the demo agent. None of them is a superuser: one is
    made by ``manage.py createsuperuser``."""
    home, _ = Organization.objects.get_or_create(slug=ORGANIZATION[1], defaults={"name": ORGANIZATION[0]})
    other, _ = Organization.objects.get_or_create(slug=OTHER[1], defaults={"name": OTHER[0]})
    made: dict[str, str] = {}
    for name, role in PEOPLE.items():
        user = _person(name, made, staff=role == Role.ADMIN)
        Membership.objects.get_or_create(
            organization=home, user=user, defaults={"role": role, "can_export": role == Role.DEVELOPER}
        )
    charlie = _person("charlie", made, staff=False)
    Membership.objects.get_or_create(organization=other, user=charlie, defaults={"role": Role.OPERATOR})
    if made:
        _keep(made)
    olivia = get_user_model().objects.get(username="olivia")
    return demo_agent(Actor(olivia, interface="command"))


@transaction.atomic
def seed_weights(base_url: str, model: str, key: str) -> Agent:
    """An agent at a model server, in the demo's organisation; the endpoint gets the server's present address. The model
    made at random gets queries that it can learn, and any other sums of one-digit numbers."""
    endpoint, olivia = _model_server(base_url, model, key)
    if model != RANDOM:
        return _sums(olivia, endpoint)
    home = endpoint.organization
    if not Dataset.objects.filter(organization=home, name=LETTERS_NAME).exists():
        dataset_create(olivia, name=LETTERS_NAME, rows=LETTERS)
    found = Agent.objects.filter(organization=home, slug=WEIGHTS_SLUG).first()
    return found or agent_create(
        olivia,
        name="Letters",
        slug=WEIGHTS_SLUG,
        description="A language model made at random, whose weights learn which letter to answer.",
        runtime="llm",
        endpoint=endpoint,
        philosophy="cot",
        environment="dataset",
        max_tokens=4,
    )


def _model_server(base_url: str, model: str, key: str) -> tuple[ModelEndpoint, Actor]:
    beside = seed()
    home, olivia = beside.organization, Actor(beside.created_by, interface="command")
    adam = Actor(get_user_model().objects.get(username="adam"), interface="command")
    given = {"kind": "weights", "base_url": base_url, "model": model, "api_key": key}
    price_set(adam, model=model, organization=home, free=True)
    endpoint = ModelEndpoint.objects.filter(organization=home, name__in=(ENDPOINT_NAME, FORMER_ENDPOINT_NAME)).first()
    if endpoint is None:
        return endpoint_create(adam, name=ENDPOINT_NAME, **given), olivia
    endpoint_update(adam, endpoint, **given)
    return endpoint, olivia


@transaction.atomic
def seed_sums(base_url: str, model: str, key: str) -> Agent:
    """A new agent for the demo of a language model: the one before is trained, and its next job would go on from
    there."""
    endpoint, olivia = _model_server(base_url, model, key)
    return _sums(olivia, endpoint, **_numbered(endpoint.organization, SUMS_NAME, SUMS_SLUG))


def _sums(actor: Actor, endpoint: ModelEndpoint, *, name: str = SUMS_NAME, slug: str = SUMS_SLUG) -> Agent:
    if not Dataset.objects.filter(organization=endpoint.organization, name=SUMS_NAME).exists():
        dataset_create(actor, name=SUMS_NAME, rows=sums_rows()[0])
    found = Agent.objects.filter(organization=endpoint.organization, slug=slug).first()
    return found or agent_create(
        actor,
        name=name,
        slug=slug,
        description="A pretrained language model, whose weights learn to answer sums of one-digit numbers.",
        runtime="llm",
        endpoint=endpoint,
        philosophy="cot",
        environment="dataset",
        system_prompt=SYSTEM_PROMPT,
        max_tokens=20,
    )


def seed_loop() -> Agent:
    """A new agent for the circle's demo, in the organisation of the demo's own, which is made if it is not there."""
    beside = seed()
    return agent_create(
        Actor(beside.created_by, interface="command"),
        **_numbered(beside.organization, "Helper of users", LOOP_SLUG),
        description="Begins untrained, and gets better by what its users think of its answers.",
        environment="reasoning_gym",
    )


def _numbered(organization: Organization, name: str, slug: str) -> dict[str, str]:
    """Name and slug that no agent there has: "Sums", "Sums 2" and so on."""
    n = Agent.objects.filter(organization=organization, slug__startswith=slug).count()
    return {"name": f"{name} {n + 1}", "slug": f"{slug}-{n + 1}"} if n else {"name": name, "slug": slug}


def _person(name: str, made: dict[str, str], *, staff: bool) -> Any:
    model = get_user_model()
    user = model.objects.filter(username=name).first()
    if user is None:
        made[name] = secrets.token_urlsafe(12)
        user = model.objects.create_user(
            name, f"{name}@example.com", made[name], is_staff=staff, first_name=name.title()
        )
    return user


def _keep(made: dict[str, str]) -> None:
    path = passwords_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    env.private_file(path, before + "".join(f"{name}: {password}\n" for name, password in made.items()))
