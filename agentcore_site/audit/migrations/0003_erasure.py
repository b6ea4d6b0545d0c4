"""An erasure by subject may take a person's words out of what was told. Who did what, when and to which row stays."""

from django.db import migrations

GUARD = """
CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF current_setting('agentcore.erasure', true) = 'on'
           AND to_jsonb(NEW) - 'target' - 'before' - 'after' = to_jsonb(OLD) - 'target' - 'before' - 'after' THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: % was refused', TG_OP;
END $$;
"""

BACK = """
CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % was refused', TG_OP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_append_only")]
    operations = [migrations.RunSQL(GUARD, BACK)]
