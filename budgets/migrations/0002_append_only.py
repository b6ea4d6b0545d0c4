"""The database itself refuses to change or delete what was booked, and to touch an amount that is held (SPEC B2)."""

from django.db import migrations

GUARD = """
CREATE FUNCTION budgets_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % was refused', TG_TABLE_NAME, TG_OP;
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON budgets_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION budgets_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON budgets_budgetlimit
    FOR EACH ROW EXECUTE FUNCTION budgets_append_only();

CREATE FUNCTION budgets_reservation_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key <> OLD.key OR NEW.amount <> OLD.amount OR NOT (
        (OLD.state = 'held' AND NEW.state IN ('settled', 'charged'))
        OR (OLD.state = 'charged' AND NEW.state = 'refunded')
    ) THEN
        RAISE EXCEPTION 'a % reservation cannot become % here', OLD.state, NEW.state;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER moves BEFORE UPDATE ON budgets_reservation
    FOR EACH ROW EXECUTE FUNCTION budgets_reservation_moves();

-- Balances are updated for every batch of calls: room on the page keeps such an update off the indexes.
ALTER TABLE budgets_budget SET (fillfactor = 50);
"""

BACK = """
ALTER TABLE budgets_budget RESET (fillfactor);
DROP TRIGGER moves ON budgets_reservation;
DROP FUNCTION budgets_reservation_moves();
DROP TRIGGER append_only ON budgets_budgetlimit;
DROP TRIGGER append_only ON budgets_ledgerentry;
DROP FUNCTION budgets_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("budgets", "0001_initial")]
    operations = [migrations.RunSQL(GUARD, BACK)]
