"""The database refuses to change a release, and to delete one but by a function of the owner's, which an erasure calls
and which leaves a line in the audit log."""

from django.db import migrations

GUARD = """
CREATE FUNCTION serving_release_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND database_owner_erases(TG_RELID) THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'created_by_id' = to_jsonb(OLD) - 'created_by_id' THEN
        RETURN NEW;  -- its maker's account was deleted
    END IF;
    RAISE EXCEPTION 'a release is immutable: % was refused', TG_OP;
END $$;
CREATE TRIGGER release_stays BEFORE UPDATE OR DELETE ON serving_release
    FOR EACH ROW EXECUTE FUNCTION serving_release_stays();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON serving_release
    FOR EACH STATEMENT EXECUTE FUNCTION serving_release_stays();

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
        INSERT INTO audit_auditevent (id, at, organization_id, user_id, actor, door, ip, action, target_type, target_id,
                                      target, before, after)
        VALUES (gen_random_uuid(), clock_timestamp(), organization, NULL, why, 'database', '', 'history.deleted',
                'serving_release', '', '', NULL, jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION serving_releases_delete(text[], uuid, text) FROM PUBLIC;
"""

BACK = """
DROP TRIGGER no_truncate ON serving_release;
DROP TRIGGER release_stays ON serving_release;
DROP FUNCTION serving_releases_delete(text[], uuid, text);
DROP FUNCTION serving_release_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0001_initial"), ("audit", "0004_erasure_by_the_owner")]
    operations = [migrations.RunSQL(GUARD, BACK)]
