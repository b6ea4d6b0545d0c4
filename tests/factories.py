"""Rows for tests."""

from __future__ import annotations

import factory
from django.contrib.auth import get_user_model

from agentcore_site.tenancy.models import Membership, Organization
from agentcore_site.tenancy.roles import Role
from experiences.models import Agent, ModelEndpoint, ToolServer

PASSWORD = "correct horse battery staple"


class OrganizationFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Organization
        django_get_or_create = ("slug",)

    name = factory.Sequence(lambda n: f"Organisation {n}")
    slug = factory.Sequence(lambda n: f"organisation-{n}")


class UserFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = get_user_model()
        django_get_or_create = ("username",)
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"person{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.com")

    @factory.post_generation
    def password(self, create: bool, extracted: str | None, **_: object) -> None:
        self.set_password(extracted or PASSWORD)  # type: ignore[attr-defined]
        self.save()  # type: ignore[attr-defined]


class MembershipFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Membership

    organization = factory.SubFactory(OrganizationFactory)
    user = factory.SubFactory(UserFactory)
    role = Role.OPERATOR


class ModelEndpointFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = ModelEndpoint

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"Endpoint {n}")
    base_url = "http://127.0.0.1:9/v1"
    model = "small"


class ToolServerFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = ToolServer

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"server-{n}")
    url = "http://127.0.0.1:9/mcp"


class AgentFactory(factory.django.DjangoModelFactory):  # type: ignore[misc]
    class Meta:
        model = Agent

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"Agent {n}")
    slug = factory.Sequence(lambda n: f"agent-{n}")
    environment = "reasoning_gym"
