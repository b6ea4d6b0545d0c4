"""The application's role can't choose the id of an entry of the ledger or of a limit: as lines of the audit log."""

from django.db import migrations

IN_TURN = """
CREATE FUNCTION budgets_id_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id <> currval(TG_ARGV[0]::regclass)
       AND current_user <> (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID) THEN
        RAISE EXCEPTION 'the database numbers the entries of %: % was refused', TG_RELID::regclass, NEW.id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER id_in_turn BEFORE INSERT ON budgets_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION budgets_id_in_turn('budgets_ledgerentry_id_seq');
CREATE TRIGGER id_in_turn BEFORE INSERT ON budgets_budgetlimit
    FOR EACH ROW EXECUTE FUNCTION budgets_id_in_turn('budgets_budgetlimit_id_seq');
"""
BACK = """
DROP TRIGGER id_in_turn ON budgets_budgetlimit;
DROP TRIGGER id_in_turn ON budgets_ledgerentry;
DROP FUNCTION budgets_id_in_turn();
"""


class Migration(migrations.Migration):
    dependencies = [("budgets", "0009_plain_words")]
    operations = [migrations.RunSQL(IN_TURN, BACK)]
