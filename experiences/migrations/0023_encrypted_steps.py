"""Steps and executions may be encrypted, decrypted, and encrypted by another key; what they say stays as it is."""

from django.db import migrations

FUNCTION = """
CREATE OR REPLACE FUNCTION experiences_trajectory_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.reward_before_ranking IS NULL AND (OLD.reward IS NULL OR NEW.reward_before_ranking = OLD.reward)
        AND to_jsonb(NEW) - 'reward' - 'reward_before_ranking' = to_jsonb(OLD) - 'reward' - 'reward_before_ranking'
    THEN
        RETURN NEW;
    END IF;{more}
    RAISE EXCEPTION 'trajectories are append-only: an UPDATE was refused';
END $$;
"""

ENCRYPTED = """
    IF to_jsonb(NEW) - 'steps' = to_jsonb(OLD) - 'steps'
        AND encryption_version(NEW.steps) <> encryption_version(OLD.steps)
    THEN
        RETURN NEW;
    END IF;"""


EXECUTIONS = """
CREATE FUNCTION experiences_execution_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved text[] := '{}';
BEGIN
    IF encryption_version(NEW.inputs) <> encryption_version(OLD.inputs) THEN
        moved := moved || 'inputs'::text;
    END IF;
    IF encryption_version(NEW.outputs) <> encryption_version(OLD.outputs) THEN
        moved := moved || 'outputs'::text;
    END IF;
    IF to_jsonb(NEW) - moved IS DISTINCT FROM to_jsonb(OLD) - moved THEN
        RAISE EXCEPTION '% is append-only: % was refused', TG_TABLE_NAME, TG_OP;
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER history_stays ON experiences_executiontrace;
CREATE TRIGGER history_stays BEFORE UPDATE ON experiences_executiontrace
    FOR EACH ROW EXECUTE FUNCTION experiences_execution_stays();
"""

EXECUTIONS_BACK = """
DROP TRIGGER history_stays ON experiences_executiontrace;
CREATE TRIGGER history_stays BEFORE UPDATE ON experiences_executiontrace
    FOR EACH ROW EXECUTE FUNCTION experiences_history_stays();
DROP FUNCTION experiences_execution_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0022_archives"), ("encryption", "0001_initial")]
    operations = [
        migrations.RunSQL(FUNCTION.replace("{more}", ENCRYPTED), FUNCTION.replace("{more}", "")),
        migrations.RunSQL(EXECUTIONS, EXECUTIONS_BACK),
    ]
