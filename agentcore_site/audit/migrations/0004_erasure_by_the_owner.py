"""An erasure reaches the log through a function of the owner's alone; the application's role may only add lines."""

from django.db import migrations

GUARD = """
CREATE FUNCTION database_owner_erases(relation oid) RETURNS boolean LANGUAGE sql STABLE AS $$
    -- Inside a function of the owner's the current user is the owner; the application's role never is.
    SELECT current_setting('agentcore.erasure', true) = 'on'
       AND current_user = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = relation)
$$;

CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF database_owner_erases(TG_RELID)
           AND to_jsonb(NEW) - 'target' - 'before' - 'after' = to_jsonb(OLD) - 'target' - 'before' - 'after' THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: % was refused', TG_OP;
END $$;

CREATE FUNCTION audit_event_erase(event uuid, new_target text, new_before jsonb, new_after jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('agentcore.erasure', 'on', true);
    UPDATE audit_auditevent SET target = new_target, before = new_before, after = new_after WHERE id = event;
    PERFORM set_config('agentcore.erasure', 'off', true);
END $$;
REVOKE ALL ON FUNCTION audit_event_erase(uuid, text, jsonb, jsonb) FROM PUBLIC;
"""

BACK = """
DROP FUNCTION audit_event_erase(uuid, text, jsonb, jsonb);
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
DROP FUNCTION database_owner_erases(oid);
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_erasure")]
    operations = [migrations.RunSQL(GUARD, BACK)]
