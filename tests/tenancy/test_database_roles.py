"""The application's role in the database: it works with rows, and can't touch what guards them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import InternalError, ProgrammingError, connection, transaction

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, PlaybookVersion
from experiences.playbooks.services.playbooks import playbook_delete, playbook_edit
from tests.support.erasures import erasure_of
from tests.support.playbooks import playbook_of

REFUSED = (ProgrammingError, InternalError)


def run(statement: str, *arguments: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return cursor.fetchall() if cursor.description else cursor.rowcount


def refused(statement: str, match: str = "permission denied|must be owner") -> None:
    with pytest.raises(REFUSED, match=match), transaction.atomic():
        run(statement)


def test_role_is_no_superuser_and_owns_nothing(db: None) -> None:
    role = run("SELECT rolsuper, rolbypassrls, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = current_user")
    assert role == [(False, False, False, False)]
    assert run("SELECT count(*) FROM pg_class WHERE pg_get_userbyid(relowner) = current_user") == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE audit_auditevent DISABLE TRIGGER ALL",
        "ALTER TABLE experiences_playbookversion DISABLE TRIGGER history_kept",
        "SET session_replication_role = replica",
        "DROP TRIGGER append_only ON budgets_ledgerentry",
        "CREATE TABLE mine (n int)",
        "CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "UPDATE audit_auditevent SET actor = 'another'",
        "DELETE FROM audit_auditevent",
        "DELETE FROM budgets_ledgerentry",
        "DELETE FROM audit_seal",
        "UPDATE audit_seal SET digest = ''",
        "INSERT INTO audit_erasedwords (number, digest, erased_at) VALUES (1, '', now())",
        "UPDATE budgets_budgetlimit SET actor = 'another'",
        "UPDATE experiences_playbookversion SET sections = '[]'",
        "UPDATE experiences_experiencechange SET after = ''",
        "DELETE FROM django_migrations",
    ],
)
def test_role_can_not_switch_off_a_guard_or_change_what_is_append_only(db: None, statement: str) -> None:
    refused(statement)


@pytest.mark.parametrize(
    ("column", "sequence"),
    [
        ("audit_auditevent (number)", "audit_auditevent_number"),
        ("budgets_ledgerentry (id)", "budgets_ledgerentry_id_seq"),
        ("budgets_budgetlimit (id)", "budgets_budgetlimit_id_seq"),
    ],
)
@pytest.mark.parametrize("away", [10**12, 1, -1, -(10**9)])
def test_role_can_not_number_a_sealed_line_itself(db: None, column: str, sequence: str, away: int) -> None:
    [(newest,)] = run("SELECT nextval(%s)", sequence)
    refused(f"INSERT INTO {column} VALUES ({newest + away})", match=f"{newest + away} was refused")


def test_role_can_not_claim_to_be_an_erasure(operator: Actor, agent: Agent) -> None:
    record(operator, "agent.changed", agent)
    playbook_of(operator, agent)
    run("SELECT set_config('agentcore.erasure', 'on', true)")
    refused("UPDATE audit_auditevent SET target = ''")
    refused("DELETE FROM experiences_playbookversion", match="append-only")
    with erasure_of(agent.organization) as ordered:
        refused(f"SELECT experiences_history_erase('audit_auditevent', '{{}}', '{ordered}')", match="no history")


def test_a_deleted_history_leaves_a_line_in_the_audit_log(operator: Actor, agent: Agent) -> None:
    playbook = playbook_of(operator, agent)
    versions = PlaybookVersion.objects.filter(playbook=playbook).count()
    playbook_delete(operator, playbook)
    line = AuditEvent.objects.get(action="history.deleted", target_type="experiences_playbookversion")
    ordered = AuditEvent.objects.get(action="playbook.deleted")
    assert line.after == {"rows": versions, "why": "its playbook was deleted", "ordered_by": str(ordered.pk)}
    assert (line.actor, line.organization_id) == ("olivia", agent.organization_id)


def test_an_applied_delta_can_not_be_deleted(operator: Actor, agent: Agent) -> None:
    delta = playbook_edit(operator, playbook_of(operator, agent), type="remove", target="s1")
    refused(f"DELETE FROM experiences_contextdelta WHERE id = '{delta.id}'", match="a delta that was applied stays")
