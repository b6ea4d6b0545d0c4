"""Releases and versions of suites go by an erasure that is named."""

from django.db import migrations

NAMED = """
DROP FUNCTION serving_releases_delete(text[], uuid, text);
DROP FUNCTION serving_suite_versions_delete(text[], uuid, text);

CREATE FUNCTION serving_releases_erase(ids text[], erasure uuid)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    organization uuid := (tenancy_erasure_open(erasure)).organization_id;
    deleted bigint;
BEGIN
    PERFORM set_config('agentcore.erasure', 'on', true);
    DELETE FROM serving_release WHERE id::text = ANY(ids) AND organization_id = organization;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('agentcore.erasure', 'off', true);
    IF deleted > 0 THEN
        PERFORM audit_history_deleted(organization, 'erasure', 'serving_release',
            jsonb_build_object('rows', deleted, 'why', 'erasure', 'erasure', erasure));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_releases_erase(text[], uuid) FROM PUBLIC;

CREATE FUNCTION serving_suite_versions_erase(ids text[], erasure uuid)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    organization uuid := (tenancy_erasure_open(erasure)).organization_id;
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
        PERFORM audit_history_deleted(organization, 'erasure', 'serving_suiteversion',
            jsonb_build_object('rows', deleted, 'why', 'erasure', 'erasure', erasure));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_suite_versions_erase(text[], uuid) FROM PUBLIC;
"""

BACK = """
DROP FUNCTION serving_suite_versions_erase(text[], uuid);
DROP FUNCTION serving_releases_erase(text[], uuid);
CREATE FUNCTION serving_releases_delete(ids text[], organization uuid, why text)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    deleted bigint;
BEGIN
    PERFORM set_config('agentcore.erasure', 'on', true);
    DELETE FROM serving_release WHERE id::text = ANY(ids) AND organization_id = organization;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('agentcore.erasure', 'off', true);
    IF deleted > 0 THEN
        PERFORM audit_history_deleted(organization, why, 'serving_release',
            jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_releases_delete(text[], uuid, text) FROM PUBLIC;
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
        PERFORM audit_history_deleted(organization, why, 'serving_suiteversion',
            jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_suite_versions_delete(text[], uuid, text) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0022_plain_words"), ("audit", "0010_erasures_named")]
    operations = [migrations.RunSQL(NAMED, BACK)]
