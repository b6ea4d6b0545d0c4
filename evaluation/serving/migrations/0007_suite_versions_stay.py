"""The database refuses to change a version of a suite, and to delete one but by a function of the owner's, which an
erasure calls, which takes its runs with it, and which leaves a line in the audit log."""

from django.db import migrations

GUARD = """
CREATE FUNCTION serving_suite_version_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND database_owner_erases(TG_RELID) THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'created_by_id' = to_jsonb(OLD) - 'created_by_id' THEN
        RETURN NEW;  -- its maker's account was deleted
    END IF;
    RAISE EXCEPTION 'a version of a suite is immutable: % was refused', TG_OP;
END $$;
CREATE TRIGGER suite_version_stays BEFORE UPDATE OR DELETE ON serving_suiteversion
    FOR EACH ROW EXECUTE FUNCTION serving_suite_version_stays();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON serving_suiteversion
    FOR EACH STATEMENT EXECUTE FUNCTION serving_suite_version_stays();

CREATE FUNCTION serving_suite_versions_delete(ids text[], organization uuid, why text)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    deleted bigint;
BEGIN
    PERFORM set_config('agentcore.erasure', 'on', true);
    DELETE FROM serving_suiteresult r USING serving_suiterun run
        WHERE r.run_id = run.job_id AND run.version_id::text = ANY(ids) AND run.organization_id = organization;
    DELETE FROM serving_suiterun WHERE version_id::text = ANY(ids) AND organization_id = organization;
    DELETE FROM serving_suiteversion v USING serving_suite s
        WHERE v.suite_id = s.id AND v.id::text = ANY(ids) AND s.organization_id = organization;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('agentcore.erasure', 'off', true);
    IF deleted > 0 THEN
        INSERT INTO audit_auditevent (id, at, organization_id, user_id, actor, door, ip, action, target_type, target_id,
                                      target, before, after)
        VALUES (gen_random_uuid(), clock_timestamp(), organization, NULL, why, 'database', '', 'history.deleted',
                'serving_suiteversion', '', '', NULL, jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_suite_versions_delete(text[], uuid, text) FROM PUBLIC;
"""

BACK = """
DROP TRIGGER no_truncate ON serving_suiteversion;
DROP TRIGGER suite_version_stays ON serving_suiteversion;
DROP FUNCTION serving_suite_versions_delete(text[], uuid, text);
DROP FUNCTION serving_suite_version_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0006_suites"), ("audit", "0004_erasure_by_the_owner")]
    operations = [migrations.RunSQL(GUARD, BACK)]
