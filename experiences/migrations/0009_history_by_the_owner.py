"""History can't be deleted or truncated either, but by a function of the owner's that leaves a line in the audit log;
another one makes the partition of a month."""

from django.db import migrations

GUARD = """
CREATE FUNCTION experiences_history_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND database_owner_erases(TG_RELID) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only: % was refused', TG_TABLE_NAME, TG_OP;
END $$;

CREATE FUNCTION experiences_settled_delta_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state NOT IN ('applied', 'merged') OR database_owner_erases(TG_RELID) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'a delta that was % stays: % was refused', OLD.state, TG_OP;
END $$;
CREATE TRIGGER history_kept BEFORE DELETE ON experiences_contextdelta
    FOR EACH ROW EXECUTE FUNCTION experiences_settled_delta_kept();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON experiences_contextdelta
    FOR EACH STATEMENT EXECUTE FUNCTION experiences_history_kept();

CREATE FUNCTION experiences_history_delete(relation text, ids text[], organization uuid, actor_name text, why text)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    deleted bigint;
BEGIN
    IF relation NOT IN ('experiences_playbookversion', 'experiences_playbookchange', 'experiences_experiencechange',
                        'experiences_contextdelta') THEN
        RAISE EXCEPTION '% holds no history', relation;
    END IF;
    PERFORM set_config('agentcore.erasure', 'on', true);
    EXECUTE format('DELETE FROM %I WHERE id::text = ANY($1)', relation) USING ids;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('agentcore.erasure', 'off', true);
    IF deleted > 0 THEN
        INSERT INTO audit_auditevent (id, at, organization_id, user_id, actor, door, ip, action, target_type, target_id,
                                      target, before, after)
        VALUES (gen_random_uuid(), clock_timestamp(), organization, NULL, left(actor_name, 150), 'database', '',
                'history.deleted', relation, '', '', NULL, jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION experiences_history_delete(text, text[], uuid, text, text) FROM PUBLIC;

CREATE FUNCTION experiences_trajectory_partition(month date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    name text := 'experiences_trajectory_' || to_char(month, 'YYYY_MM');
    first date := date_trunc('month', month)::date;
BEGIN
    IF to_regclass(name) IS NULL THEN
        -- Two workers may both find it missing; the lock makes them take turns.
        PERFORM pg_advisory_xact_lock(hashtext(name));
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF experiences_trajectory FOR VALUES FROM (%L) TO (%L)',
                       name, first, (first + interval '1 month')::date);
    END IF;
END $$;
REVOKE ALL ON FUNCTION experiences_trajectory_partition(date) FROM PUBLIC;

CREATE TRIGGER history_kept BEFORE DELETE ON experiences_playbookversion
    FOR EACH ROW EXECUTE FUNCTION experiences_history_kept();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON experiences_playbookversion
    FOR EACH STATEMENT EXECUTE FUNCTION experiences_history_kept();
CREATE TRIGGER history_kept BEFORE DELETE ON experiences_playbookchange
    FOR EACH ROW EXECUTE FUNCTION experiences_history_kept();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON experiences_playbookchange
    FOR EACH STATEMENT EXECUTE FUNCTION experiences_history_kept();
CREATE TRIGGER history_kept BEFORE DELETE ON experiences_experiencechange
    FOR EACH ROW EXECUTE FUNCTION experiences_history_kept();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON experiences_experiencechange
    FOR EACH STATEMENT EXECUTE FUNCTION experiences_history_kept();
"""

BACK = """
DROP TRIGGER no_truncate ON experiences_playbookversion;
DROP TRIGGER history_kept ON experiences_playbookversion;
DROP TRIGGER no_truncate ON experiences_playbookchange;
DROP TRIGGER history_kept ON experiences_playbookchange;
DROP TRIGGER no_truncate ON experiences_experiencechange;
DROP TRIGGER history_kept ON experiences_experiencechange;
DROP FUNCTION experiences_trajectory_partition(date);
DROP FUNCTION experiences_history_delete(text, text[], uuid, text, text);
DROP TRIGGER no_truncate ON experiences_contextdelta;
DROP TRIGGER history_kept ON experiences_contextdelta;
DROP FUNCTION experiences_settled_delta_kept();
DROP FUNCTION experiences_history_kept();
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0008_tool_grants"), ("audit", "0004_erasure_by_the_owner")]
    operations = [migrations.RunSQL(GUARD, BACK)]
