"""The database itself refuses to change or delete what was logged (SPEC S5)."""

from django.db import migrations

GUARD = """
CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % was refused', TG_OP;
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_auditevent
    FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON audit_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
"""

BACK = """
DROP TRIGGER no_truncate ON audit_auditevent;
DROP TRIGGER append_only ON audit_auditevent;
DROP FUNCTION audit_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]
    operations = [migrations.RunSQL(GUARD, BACK)]
