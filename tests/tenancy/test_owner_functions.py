"""Functions with the owner's rights, as the catalogue lists them for the application's role: none takes words."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error, connection, transaction

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.sealing import seal, tables, verify
from agentcore_site.audit.services import event_erase, record
from agentcore_site.database_roles import APPEND_ONLY, HISTORIES, IMMUTABLE, OPEN_COLUMNS, ORDERS, OWNERS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Erasure, Organization
from experiences.models import Agent, PlaybookVersion
from experiences.playbooks.services.playbooks import playbook_delete, playbook_edit
from tests.support.erasures import erasure_of
from tests.support.owner import as_owner
from tests.support.playbooks import playbook_of

LOG = tables["audit log"]
PAST = ("audit_auditevent", "audit_seal", "audit_erasedwords", *APPEND_ONLY[1:3], *HISTORIES, *IMMUTABLE, *ORDERS)
NOBODY = uuid.UUID(int=0)
# Each function that the role may execute with the owner's rights: its arguments, and what it may change.
FUNCTIONS = {
    "audit_event_erase": ("event uuid, erasure uuid, words text[]", "marks in the place of words of the log"),
    "encryption_active_version": ("organization uuid", "nothing"),
    "experiences_empty_version_delete": ("playbook uuid", "an empty version that nothing was executed with"),
    "experiences_history_erase": ("relation text, ids text[], erasure uuid", "rows of a history, by an erasure"),
    "experiences_playbook_delete": ("event uuid", "a playbook with its history"),
    "experiences_trajectory_partition": ("month date", "a new table of a month"),
    "experiences_trajectory_partition_drop": ("month date", "the table of a month whose rows are all archived"),
    "jobs_to_do": ("", "nothing"),
    "serving_releases_erase": ("ids text[], erasure uuid", "releases, by an erasure"),
    "serving_suite_versions_erase": ("ids text[], erasure uuid", "versions of suites with their runs, by an erasure"),
}


def run(statement: str, *arguments: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return cursor.fetchall() if cursor.description else cursor.rowcount


def past() -> dict[str, set[str]]:
    """All rows that must stay as they are."""
    with as_owner():
        return {table: {row for (row,) in run(f"SELECT to_jsonb(t)::text FROM {table} t")} for table in PAST}


@pytest.fixture
def line(operator: Actor, agent: Agent) -> AuditEvent:
    """A line of the log beside a playbook with a history, and an erasure that ended."""
    playbook_edit(operator, playbook_of(operator, agent), type="remove", target="s1")
    with erasure_of(agent.organization):
        pass
    return record(operator, "key.made", agent, after={"name": "harmless?", "scopes": ["deployments:write"]})


def test_the_catalogue_has_these_functions_with_the_owners_rights_and_no_others(db: None) -> None:
    listed = run(
        "SELECT proname, pg_get_function_identity_arguments(oid), proconfig FROM pg_proc"
        " WHERE prosecdef AND has_function_privilege(current_user, oid, 'EXECUTE')"
        " AND pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
    )
    assert {name: arguments for name, arguments, _ in listed} == {name: one[0] for name, one in FUNCTIONS.items()}
    # A table or operator of the caller's is never found before one of the owner's.
    assert all("search_path=public, pg_temp" in settings for _, _, settings in listed)


HOSTILE = {
    "audit_event_erase": lambda line: [[line.pk, NOBODY, ["write"]], [line.pk, ended(), ["write"]]],
    "encryption_active_version": lambda line: [[line.organization_id], [NOBODY]],
    "experiences_empty_version_delete": lambda line: [[PlaybookVersion.objects.all()[0].playbook_id], [NOBODY]],
    "experiences_history_erase": lambda line: [
        [relation, [str(pk) for (pk,) in run(f"SELECT id FROM {table}")], order]
        for table in ("audit_auditevent", "experiences_contextdelta", *HISTORIES)
        for relation in (table, f"{table} USING audit_seal")
        for order in (NOBODY, ended())
    ],
    "experiences_playbook_delete": lambda line: [[line.pk], [made().pk], [elsewhere_deleted().pk]],
    "experiences_trajectory_partition": lambda line: [["infinity"], ["-infinity"], ["2000-01-01"]],
    "experiences_trajectory_partition_drop": lambda line: [["infinity"], ["2000-01-01"]],
    "jobs_to_do": lambda line: [[]],
    "serving_releases_erase": lambda line: [[[str(NOBODY)], NOBODY], [[str(NOBODY)], ended()]],
    "serving_suite_versions_erase": lambda line: [[[str(NOBODY)], NOBODY], [[str(NOBODY)], ended()]],
}


def ended() -> uuid.UUID:
    return Erasure.objects.values_list("pk", flat=True)[0]


def made() -> AuditEvent:
    """The true line of a playbook that was made: it orders no deletion."""
    return AuditEvent.objects.filter(action__startswith="playbook.").exclude(action="playbook.deleted")[0]


def elsewhere_deleted() -> AuditEvent:
    """A forged line of another organisation's, which names this one's playbook."""
    playbook = PlaybookVersion.objects.all()[0].playbook
    return record(None, "playbook.deleted", playbook, organization=NOBODY)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_changes_the_past_without_a_true_order(line: AuditEvent, name: str) -> None:
    calls: Callable[[AuditEvent], list[list[Any]]] = HOSTILE[name]
    tries = calls(line)
    before = past()
    run("SELECT set_config('agentcore.erasure', 'on', true)")
    for arguments in tries:
        try:
            with transaction.atomic():
                run(f"SELECT {name}({', '.join(['%s'] * len(arguments))})", *arguments)
        except Error:
            pass  # refused
        after = past()
        assert all(rows <= after[table] for table, rows in before.items()), arguments


@pytest.mark.parametrize("table", [*APPEND_ONLY, *OWNERS, *HISTORIES, *IMMUTABLE, *ORDERS])
def test_no_column_of_the_past_can_be_updated_but_these(db: None, table: str) -> None:
    columns = run(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND has_column_privilege(current_user, attrelid, attnum, 'UPDATE')",
        table,
    )
    listed = {one.strip(' "') for name, names in OPEN_COLUMNS if name == table for one in names.split(",")}
    assert {name for (name,) in columns} == listed
    assert run("SELECT has_table_privilege(current_user, %s, 'DELETE')", table) == [(bool(listed),)]


def test_an_erasure_puts_marks_in_the_place_of_words_and_of_nothing_else(line: AuditEvent) -> None:
    words = {"Ann (A.) Fox": ["ANN (a.) FOX wrote", {"deep": 1.50, "none": None, "yes": True}], "all": {}, "list": []}
    event = record(None, "test.person", organization=line.organization_id, before=words, after=None)
    with erasure_of(Organization.objects.get(pk=line.organization_id)) as ordered:
        event_erase(event.pk, ordered, ["ann (a.) fox"])
        for few in ([], ["abc"], [None], None, ["word"] * 21):
            with pytest.raises(Error, match="1 to 20 words"), transaction.atomic():
                run("SELECT audit_event_erase(%s, %s, %s::text[])", event.pk, ordered, few)
    event.refresh_from_db()
    assert event.before == {
        "[erased]": ["[erased] wrote", {"deep": 1.50, "none": None, "yes": True}],
        "all": {},
        "list": [],
    }
    assert event.after is None


def test_an_erasure_reaches_no_line_and_no_history_of_another_organisation(
    line: AuditEvent, elsewhere: Organization
) -> None:
    versions = list(PlaybookVersion.objects.values_list("pk", flat=True))
    with erasure_of(elsewhere) as ordered:
        with pytest.raises(Error, match="has no line"), transaction.atomic():
            event_erase(line.pk, ordered, ["write"])
        erase = "SELECT experiences_history_erase('experiences_playbookversion', %s::text[], %s)"
        assert run(erase, [str(pk) for pk in versions], ordered) == [(0,)]
    assert PlaybookVersion.objects.count() == len(versions) > 0


def test_a_report_gets_its_result_once_and_stays(line: AuditEvent) -> None:
    report = Erasure.objects.get()
    for change in ({"left": {}}, {"left": {"audit log": 7}}, {"requested_by": Actor(line.user).user}):
        with pytest.raises(Error, match=r"stays|permission denied"), transaction.atomic():
            Erasure.objects.filter(pk=report.pk).update(**change)
    for change in ({"found": {}}, {"organization": NOBODY}):
        with pytest.raises(Error, match="permission denied"), transaction.atomic():
            Erasure.objects.filter(pk=report.pk).update(**change)
    with pytest.raises(Error, match="stays"), transaction.atomic():
        Erasure.objects.filter(pk=report.pk).delete()


def test_words_that_were_erased_without_an_erasure_are_named(line: AuditEvent) -> None:
    number = AuditEvent.objects.values_list("number", flat=True).get(pk=line.pk)
    with erasure_of(Organization.objects.get(pk=line.organization_id)) as ordered:
        event_erase(line.pk, ordered, ["harmless"])
        assert verify(LOG).wrong == [f"words of line {number} were erased, and no erasure ordered it"]
    seal(LOG)
    assert verify(LOG).wrong == []
    with as_owner():
        run("SET LOCAL session_replication_role = replica")
        run("DELETE FROM tenancy_erasure WHERE id = %s", ordered)
    with pytest.raises(SystemExit):
        call_command("audit_verify", stdout=(out := StringIO()), stderr=StringIO())
    assert f"audit log: words of line {number} were erased, and no erasure ordered it" in out.getvalue()


def test_words_that_were_erased_before_erasures_were_named_verify_and_are_counted(line: AuditEvent) -> None:
    """As the migration leaves them. The mark is not the role's to set, and covers no later erasure."""
    number = AuditEvent.objects.values_list("number", flat=True).get(pk=line.pk)
    with as_owner():
        run("SET LOCAL session_replication_role = replica")
        run(
            "INSERT INTO audit_erasedwords SELECT number, audit_words_digest(t), now(), true FROM audit_auditevent t"
            " WHERE id = %s",
            line.pk,
        )
        run("UPDATE audit_auditevent SET after = %s WHERE id = %s", json.dumps({"name": "[erased]"}), line.pk)
        run("SET LOCAL session_replication_role = origin")
    now = run("SELECT encode(audit_words_digest(t), 'hex') FROM audit_auditevent t WHERE id = %s", line.pk)[0][0]
    logged = record(None, "audit.words_erased", line, organization=line.organization_id, after={"now": now})
    assert logged.target_id == str(line.pk) and verify(LOG).wrong == []
    call_command("audit_verify", stdout=(out := StringIO()))
    assert "audit log: words of 1 lines were erased before erasures were named" in out.getvalue()
    for statement in (
        "INSERT INTO audit_erasedwords VALUES (1, '', now(), true)",
        "UPDATE audit_erasedwords SET predates_naming = true",
    ):
        with pytest.raises(Error, match="permission denied"), transaction.atomic():
            run(statement)
    order = Erasure.objects.create(organization_id=line.organization_id, digests=[], found={}, left={})
    event_erase(line.pk, order.pk, ["harmless"])
    assert verify(LOG).wrong == [f"words of line {number} were erased, and no erasure ordered it"]


def test_a_playbook_is_deleted_with_its_history(operator: Actor, line: AuditEvent) -> None:
    version = PlaybookVersion.objects.all()[0]
    playbook_delete(operator, version.playbook)
    ordered = AuditEvent.objects.get(action="playbook.deleted")
    lines = AuditEvent.objects.filter(action="history.deleted")
    assert {one.target_type for one in lines} >= {"experiences_playbookversion", "experiences_playbookchange"}
    assert {one.after["ordered_by"] for one in lines} == {str(ordered.pk)}
    assert not PlaybookVersion.objects.exists()
