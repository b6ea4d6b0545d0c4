"""Rights of the application's role in the database. Applied after each migration, by the owner of the tables.

The owner migrates; web, workers and beat connect with a role that owns nothing: it can't switch off a trigger,
truncate, or change what is append-only. What only the owner may do is offered by functions of the owner's (``SECURITY
DEFINER``): erasing words from the audit log, deleting history with its playbook or for an erasure, and making a
month's partition. They take identifiers of what goes and of what orders it, and write their marks themselves.
Where one role does both (a single ``DATABASE_URL``), the triggers guard against mistakes only.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from django.conf import settings
from django.db import connections, transaction
from django.db.utils import ProgrammingError
from psycopg import sql

from agentcore_site import row_security

log = logging.getLogger(__name__)

EVERYWHERE: Final = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {role}",
)
# Append-only tables.
APPEND_ONLY: Final = ("audit_auditevent", "budgets_ledgerentry", "budgets_budgetlimit", "audit_seal")
# Written by functions of the owner only: a line here says that words of the audit log may differ from their seal.
OWNERS: Final = ("audit_erasedwords",)
# Views are for reading: a write through a view would be a write as the view's owner.
VIEWS: Final = ("experiences_trajectory_search", "experiences_query_search")
# Histories: a line outlives the job that it names. A trigger refuses to delete them. (The right itself stays: Django
# asks to delete what belongs to a deleted row also where there is nothing.)
HISTORIES: Final = ("experiences_experiencechange", "experiences_playbookchange", "experiences_playbookversion")
# Never changed, except when their creator's account is deleted.
IMMUTABLE: Final = ("serving_release", "serving_suiteversion")
# They order erasures. A trigger lets their result be added once, and refuses to delete them.
ORDERS: Final = ("tenancy_erasure",)
# The columns that may be updated where the others may not.
OPEN_COLUMNS: Final = (
    *((table, "job_id") for table in HISTORIES),
    *((table, "created_by_id") for table in IMMUTABLE),
    *((table, '"left", requested_by_id') for table in ORDERS),
)


def grant(sender: Any = None, *, using: str = "default", **_: Any) -> None:
    """Grants the application's role its rights and sets its time limit. A receiver of ``post_migrate``."""
    connection, role = connections[using], settings.DATABASE_APPLICATION_ROLE
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user, pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'django_migrations'"
        )
        mine, owner = cursor.fetchone() or ("", "")
    if mine != owner:  # between tests the application's role flushes tables, which ends with this signal too
        return
    with transaction.atomic(using=using), connection.cursor() as cursor:
        for statement in _grants(role) if role != owner else ():
            cursor.execute(statement)
        row_security.close_partitions(cursor)
    row_security.apply(connection)
    _limit_idle_transactions(connection, role)


def _grants(role: str) -> list[sql.Composed]:
    named = sql.Identifier(role)
    statements = [sql.SQL(line).format(role=named) for line in EVERYWHERE]
    for table in APPEND_ONLY:
        revoke = sql.SQL("REVOKE UPDATE, DELETE, TRUNCATE ON {} FROM {}")
        statements.append(revoke.format(sql.Identifier(table), named))
    for table in (*OWNERS, *VIEWS):
        revoke = sql.SQL("REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {} FROM {}")
        statements.append(revoke.format(sql.Identifier(table), named))
    for table, columns in OPEN_COLUMNS:
        for line in ("REVOKE UPDATE, TRUNCATE ON {} FROM {}", f"GRANT UPDATE ({columns}) ON {{}} TO {{}}"):
            statements.append(sql.SQL(line).format(sql.Identifier(table), named))
    return statements


def _limit_idle_transactions(connection: Any, role: str) -> None:
    """Sets the role's limit in this database. Sessions that begin later have it, also behind a pooler."""
    statement = sql.SQL("ALTER ROLE {} IN DATABASE {} SET idle_in_transaction_session_timeout = {}").format(
        sql.Identifier(role),
        sql.Identifier(connection.settings_dict["NAME"]),
        sql.Literal(f"{settings.IDLE_SECONDS}s"),
    )
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            cursor.execute(statement)
    except ProgrammingError as error:
        shown = statement.as_string(connection.connection)
        log.warning("%s. Run this once as an administrator of the database: %s;", str(error).strip(), shown)
