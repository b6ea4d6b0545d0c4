"""Accounts of publishers in the server's own format. Pure.

Each publisher has an account of its own, in which the plain subjects are mapped: its messages reach us under a name
that only the server can give (``events.subjects``), with the acknowledgement of the stream; it receives our messages to
its organisation under the plain subject. It may publish nothing else, sees no other account, and has so many
connections. The bytes of a message are limited by the server (``embedded.nats.MAX_PAYLOAD``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from evaluation.events.subjects import RECEIVED, SUBJECTS

CONNECTIONS: Final = 64  # of one publisher at a time
SUBSCRIPTIONS: Final = 200  # of one connection


@dataclass(frozen=True, slots=True)
class PublisherAccount:
    """A publisher that connects as ``user``, the bcrypt ``digest`` of its password, and the subjects it may publish."""

    id: UUID
    organization_id: UUID
    user: str
    digest: str
    may_publish: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"P_{self.id.hex}"


def exports_of(publishers: Sequence[PublisherAccount]) -> str:
    """The exports of our account to each publisher."""
    lines = [
        f'{{service: "{RECEIVED}.{account.organization_id}.{account.id}.>", accounts: ["{account.name}"]}}'
        for account in publishers
    ]
    by_organization: dict[UUID, list[str]] = {}
    for publisher in publishers:
        by_organization.setdefault(publisher.organization_id, []).append(f'"{publisher.name}"')
    lines += [f'{{stream: "out.{id}.>", accounts: [{", ".join(names)}]}}' for id, names in by_organization.items()]
    return _lines(lines, 6)


def accounts_of(publishers: Iterable[PublisherAccount], ours: str) -> str:
    """The publishers' accounts, which import from the account ``ours``."""
    return "".join(_account(publisher, ours) for publisher in publishers)


def _account(one: PublisherAccount, ours: str) -> str:
    received = [
        f'{{stream: {{account: {ours}, subject: "out.{one.organization_id}.{subject}"}}, to: "{subject}"}}'
        for subject in SUBJECTS
    ]
    published = [
        f'{{service: {{account: {ours}, subject: "{RECEIVED}.{one.organization_id}.{one.id}.{subject}"}},'
        f' to: "{subject}"}}'
        for subject in one.may_publish
    ]
    publish = ", ".join(f'"{subject}"' for subject in one.may_publish)
    rights = f'{{publish: [{publish}], subscribe: ["agent.rl.>", "_INBOX.>"]}}'
    return (
        f"  {one.name} {{\n"
        f'    users: [{{user: "{one.user}", password: "{one.digest}", permissions: {rights}}}]\n'
        f"    limits: {{max_connections: {CONNECTIONS}, max_subscriptions: {SUBSCRIPTIONS}}}\n"
        f"    imports: [\n{_lines([*published, *received], 6)}    ]\n"
        "  }\n"
    )


def _lines(lines: Iterable[str], indent: int) -> str:
    return "".join(f"{' ' * indent}{line}\n" for line in lines)
