"""The report of an erasure is written before the erasure, orders it, and stays: only its result is added, once."""

from django.db import migrations

GUARD = """
CREATE FUNCTION tenancy_erasure_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.requested_by_id IS NULL AND to_jsonb(NEW) - 'requested_by_id' = to_jsonb(OLD) - 'requested_by_id' THEN
            RETURN NEW;  -- the account was deleted
        END IF;
        IF OLD."left" = '{}' AND to_jsonb(NEW) - 'left' = to_jsonb(OLD) - 'left' THEN
            RETURN NEW;  -- the erasure ended
        END IF;
    END IF;
    RAISE EXCEPTION 'the report of an erasure stays: % was refused', TG_OP;
END $$;
CREATE TRIGGER erasure_stays BEFORE UPDATE OR DELETE ON tenancy_erasure
    FOR EACH ROW EXECUTE FUNCTION tenancy_erasure_stays();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON tenancy_erasure
    FOR EACH STATEMENT EXECUTE FUNCTION tenancy_erasure_stays();

-- The erasure that orders a change of the past. It orders nothing more once it has its result.
CREATE FUNCTION tenancy_erasure_open(erasure uuid) RETURNS tenancy_erasure LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_row tenancy_erasure;
BEGIN
    SELECT * INTO found_row FROM tenancy_erasure WHERE id = erasure AND "left" = '{}';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no erasure % is under way', erasure;
    END IF;
    RETURN found_row;
END $$;
"""

BACK = """
DROP FUNCTION tenancy_erasure_open(uuid);
DROP TRIGGER no_truncate ON tenancy_erasure;
DROP TRIGGER erasure_stays ON tenancy_erasure;
DROP FUNCTION tenancy_erasure_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0015_plain_words")]
    operations = [migrations.RunSQL(GUARD, BACK)]
