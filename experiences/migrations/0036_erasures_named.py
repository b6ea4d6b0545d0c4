"""History goes by an erasure, which is named, or with its playbook. Who calls says which, and not why or for whom."""

from django.db import migrations

NAMED = """
DROP FUNCTION experiences_history_delete(text, text[], uuid, text, text);

CREATE FUNCTION experiences_history_erase(relation text, ids text[], erasure uuid)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    organization uuid := (tenancy_erasure_open(erasure)).organization_id;
    theirs text := CASE relation
        WHEN 'experiences_contextdelta' THEN 'organization_id = $2'
        WHEN 'experiences_experiencechange'
            THEN 'experience_id IN (SELECT id FROM experiences_experience WHERE organization_id = $2)'
        WHEN 'experiences_playbookversion'
            THEN 'playbook_id IN (SELECT id FROM experiences_playbook WHERE organization_id = $2)'
        WHEN 'experiences_playbookchange'
            THEN 'playbook_id IN (SELECT id FROM experiences_playbook WHERE organization_id = $2)' END;
    deleted bigint;
BEGIN
    IF theirs IS NULL THEN
        RAISE EXCEPTION '% holds no history', relation;
    END IF;
    PERFORM set_config('agentcore.erasure', 'on', true);
    EXECUTE format('DELETE FROM %I WHERE id::text = ANY($1) AND %s', relation, theirs) USING ids, organization;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('agentcore.erasure', 'off', true);
    IF deleted > 0 THEN
        PERFORM audit_history_deleted(organization, 'erasure', relation,
            jsonb_build_object('rows', deleted, 'why', 'erasure', 'erasure', erasure));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION experiences_history_erase(text, text[], uuid) FROM PUBLIC;

-- Deletes a playbook with its history. `event` is the line of the log that says that the playbook is deleted.
CREATE FUNCTION experiences_playbook_delete(event uuid)
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    line audit_auditevent;
    playbook uuid;
    relation text;
    deleted bigint;
BEGIN
    SELECT * INTO line FROM audit_auditevent WHERE id = event AND action = 'playbook.deleted'
        AND target_type = 'experiences.playbook';
    SELECT id INTO playbook FROM experiences_playbook
        WHERE id::text = line.target_id AND organization_id = line.organization_id FOR UPDATE;
    IF playbook IS NULL THEN
        RAISE EXCEPTION 'line % deletes no playbook', event;
    END IF;
    PERFORM set_config('agentcore.erasure', 'on', true);
    FOREACH relation IN ARRAY ARRAY['experiences_playbookversion', 'experiences_playbookchange',
                                    'experiences_contextdelta'] LOOP
        EXECUTE format('DELETE FROM %I WHERE playbook_id = $1', relation) USING playbook;
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted > 0 THEN
            PERFORM audit_history_deleted(line.organization_id, line.actor, relation,
                jsonb_build_object('rows', deleted, 'why', 'its playbook was deleted', 'ordered_by', event));
        END IF;
    END LOOP;
    PERFORM set_config('agentcore.erasure', 'off', true);
    DELETE FROM experiences_playbook WHERE id = playbook;
END $$;
REVOKE ALL ON FUNCTION experiences_playbook_delete(uuid) FROM PUBLIC;

-- Deletes the empty version that was made with an agent and that nothing was executed with.
CREATE FUNCTION experiences_empty_version_delete(playbook uuid)
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    found_row experiences_playbook;
BEGIN
    SELECT * INTO found_row FROM experiences_playbook WHERE id = playbook FOR UPDATE;
    IF found_row.version IS DISTINCT FROM 1
       OR EXISTS (SELECT FROM experiences_playbookversion v WHERE v.playbook_id = playbook
                  AND (v.number <> 1 OR v.sections <> '[]'))
       OR EXISTS (SELECT FROM experiences_executiontrace WHERE agent_id = found_row.agent_id AND context_version = 1)
    THEN
        RAISE EXCEPTION 'playbook % has more than an unused empty version', playbook;
    END IF;
    PERFORM set_config('agentcore.erasure', 'on', true);
    DELETE FROM experiences_playbookversion WHERE playbook_id = playbook;
    PERFORM set_config('agentcore.erasure', 'off', true);
    PERFORM audit_history_deleted(found_row.organization_id, 'system', 'experiences_playbookversion',
        jsonb_build_object('rows', 1, 'why', 'the empty first version was replaced', 'playbook', playbook));
END $$;
REVOKE ALL ON FUNCTION experiences_empty_version_delete(uuid) FROM PUBLIC;
"""

BACK = """
DROP FUNCTION experiences_empty_version_delete(uuid);
DROP FUNCTION experiences_playbook_delete(uuid);
DROP FUNCTION experiences_history_erase(text, text[], uuid);
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
        PERFORM audit_history_deleted(organization, left(actor_name, 150), relation,
            jsonb_build_object('rows', deleted, 'why', why));
    END IF;
    RETURN deleted;
END $$;
REVOKE ALL ON FUNCTION experiences_history_delete(text, text[], uuid, text, text) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("experiences", "0035_plain_words"), ("audit", "0010_erasures_named")]
    operations = [migrations.RunSQL(NAMED, BACK)]
