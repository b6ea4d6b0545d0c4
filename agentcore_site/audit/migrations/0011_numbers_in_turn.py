"""The application's role can't choose the number of a line: one far ahead would come after all lines of the future."""

from django.db import migrations

IN_TURN = """
CREATE FUNCTION audit_number_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number <> currval('audit_auditevent_number')
       AND current_user <> (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID) THEN
        RAISE EXCEPTION 'the database numbers the lines of the audit log: % was refused', NEW.number;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER number_in_turn BEFORE INSERT ON audit_auditevent
    FOR EACH ROW EXECUTE FUNCTION audit_number_in_turn();
"""
BACK = "DROP TRIGGER number_in_turn ON audit_auditevent; DROP FUNCTION audit_number_in_turn();"


class Migration(migrations.Migration):
    dependencies = [("audit", "0010_erasures_named")]
    operations = [migrations.RunSQL(IN_TURN, BACK)]
