"""The second wall: which organisation's rows the database shows to a statement (docs/decisions/0024).

Declared by what models say already. A table with the organisation's key is compared with the scope in force; one
without is seen where its parent is, by the path of its manager (``job__organization``). Applied after each migration,
by the owner, to whom no policy applies: migrations, backups and the owner's functions see everything.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from django.apps import apps
from django.db import transaction
from django.db.models import Model

# Tables that belong to no organisation, and why.
PLAIN: Final = {
    "audit_erasedwords": "digests, by numbers of lines; read by audit_verify",
    "audit_seal": "over lines of all organisations",
    "auth_group": "a person's rights in the admin",
    "auth_permission": "a person's rights in the admin",
    "jobs_hostprocess": "of the whole site",
    "site_roof_tablesize": "of the whole site",
    "auth_user": "a person may belong to several organisations",
    "django_admin_log": "by person",
    "django_content_type": "names of tables",
    "django_session": "by person, signed",
    "site_roof_sitefact": "of the whole site",
    "tenancy_browsersession": "by person",
    "tenancy_passkey": "by person",
    "tenancy_provideraccount": "by person",
    "tenancy_secondfactor": "by person",
    "tenancy_tokenfamily": "by person",
    "warehouse_warehousestore": "of the whole site",
}
# The few tables whose manager names no path.
PATHS: Final = {
    "tenancy_organization": "id",
    "tenancy_membership": "organization",
    "audit_auditevent": "organization_id",
}
# Rows without an organisation are the site's, and seen by all.
SHARED: Final = ("budgets_modelprice",)

POLICY: Final = "of_the_scope"
SCOPE: Final = "current_setting('agentcore.scope', true)"
EVERYTHING: Final = f"{SCOPE} = '*'"
# Asked of each row: to read the scope once a statement, in sub-selects, costs a statement of few rows twice as much.
MINE: Final = f"strpos({SCOPE}, {{}}::text) > 0"


def tenant_models() -> list[type[Model]]:
    found = [model for model in apps.get_models(include_auto_created=True) if model._meta.db_table not in PLAIN]
    return [one for one in found if not one._meta.proxy and not one._meta.auto_created]


def policy(model: type[Model]) -> tuple[str, str]:
    """Conditions of SQL for the rows that are seen, and for those that may be written.

    Raises:
        LookupError: the model says neither to whom its rows belong nor that they belong to no organisation.
    """
    table = model._meta.db_table
    path = PATHS.get(table) or getattr(model._default_manager, "path", None)
    if path is None:
        raise LookupError(f"{table}: whose rows are these? Give it a ScopedManager, or a line in PLAIN.")
    first, *rest = path.split("__")
    field: Any = model._meta.get_field(first)
    column = f"{table}.{field.column}"
    if rest:
        parent = field.related_model._meta
        mine = f"EXISTS (SELECT FROM {parent.db_table} parent WHERE parent.{parent.pk.column} = {column})"
    else:
        mine = MINE.format(column)
    seen = f"{EVERYTHING} OR {mine}"
    return (f"{seen} OR {column} IS NULL" if table in SHARED else seen), seen


def apply(connection: Any) -> None:
    """Gives each table its policy, where it has not got that one yet. One table at a time: what a transaction has
    locked waits for no other table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, obj_description(p.oid, 'pg_policy') FROM pg_class c"
            " JOIN pg_policy p ON p.polrelid = c.oid AND p.polname = %s"
            " WHERE c.relnamespace = 'public'::regnamespace AND c.relrowsecurity",
            [POLICY],
        )
        known = dict(cursor.fetchall())
    for model in tenant_models():
        table, (seen, written) = model._meta.db_table, policy(model)
        digest = hashlib.sha256(f"{seen} {written}".encode()).hexdigest()
        if known.get(table) == digest:
            continue
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            cursor.execute(f"DROP POLICY IF EXISTS {POLICY} ON {table}")
            cursor.execute(f"CREATE POLICY {POLICY} ON {table} USING ({seen}) WITH CHECK ({written})")
            cursor.execute(f"COMMENT ON POLICY {POLICY} ON {table} IS '{digest}'")
            cursor.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")


def close_partitions(cursor: Any) -> None:
    """A policy is asked of the table that a statement names, and COPY takes none. So partitions may be written to by
    name, and read through their table alone."""
    cursor.execute(
        "SELECT experiences_partition_close(inhrelid) FROM pg_inherits"
        " WHERE inhparent = 'experiences_trajectory'::regclass"
    )
