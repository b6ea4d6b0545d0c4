"""An erasure of words names the row that ordered it, and is given what goes, never what comes instead.

Words that were erased before are marked here, in a table that only the owner writes.
"""

from django.db import migrations, models

NAMED = """
DROP FUNCTION audit_event_erase(uuid, text, jsonb, jsonb);

-- The text with each of the words replaced by a mark, in any case.
CREATE FUNCTION audit_words_marked(value text, words text[]) RETURNS text LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    word text;
BEGIN
    FOREACH word IN ARRAY words LOOP
        value := regexp_replace(value, '***=' || word, '[erased]', 'gi');
    END LOOP;
    RETURN value;
END $$;
CREATE FUNCTION audit_words_marked(value jsonb, words text[]) RETURNS jsonb LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'string' THEN to_jsonb(audit_words_marked(value #>> '{}', words))
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(audit_words_marked(one, words) ORDER BY place), '[]')
            FROM jsonb_array_elements(value) WITH ORDINALITY AS elements (one, place))
        WHEN 'object' THEN (
            SELECT coalesce(jsonb_object_agg(audit_words_marked(key, words), audit_words_marked(one, words)), '{}')
            FROM jsonb_each(value) AS members (key, one))
        ELSE value END;
END $$;

CREATE FUNCTION audit_event_erase(event uuid, erasure uuid, words text[])
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    line audit_auditevent;
    was bytea;
BEGIN
    IF (cardinality(words) BETWEEN 1 AND 20) IS NOT TRUE
       OR EXISTS (SELECT FROM unnest(words) word WHERE coalesce(length(word), 0) < 4) THEN
        RAISE EXCEPTION 'an erasure has 1 to 20 words of at least 4 characters';
    END IF;
    SELECT * INTO line FROM audit_auditevent WHERE id = event
        AND organization_id = (tenancy_erasure_open(erasure)).organization_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the organisation of the erasure has no line %', event;
    END IF;
    was := audit_words_digest(line);
    INSERT INTO audit_erasedwords (number, digest, erased_at, predates_naming) VALUES (line.number, was, now(), false)
        ON CONFLICT (number) DO NOTHING;
    PERFORM set_config('agentcore.erasure', 'on', true);
    -- With another salt the digest that is kept says nothing about the words any more.
    UPDATE audit_auditevent SET target = left(audit_words_marked(target, words), 200),
            before = audit_words_marked(before, words), after = audit_words_marked(after, words),
            salt = gen_random_uuid()
        WHERE id = event RETURNING * INTO line;
    PERFORM set_config('agentcore.erasure', 'off', true);
    INSERT INTO audit_auditevent
            (id, at, organization_id, actor, door, ip, action, target_type, target_id, target, after)
        VALUES (gen_random_uuid(), clock_timestamp(), line.organization_id, 'system', '', '', 'audit.words_erased',
            'audit.auditevent', event::text, '', jsonb_build_object('line', line.number, 'erasure', erasure,
            'was', encode(was, 'hex'), 'now', encode(audit_words_digest(line), 'hex')));
END $$;
REVOKE ALL ON FUNCTION audit_event_erase(uuid, uuid, text[]) FROM PUBLIC;

-- The line that a deletion of history leaves. Functions of the owner call it.
CREATE FUNCTION audit_history_deleted(organization uuid, by text, relation text, details jsonb) RETURNS void
    LANGUAGE sql AS $$
    INSERT INTO audit_auditevent (id, at, organization_id, user_id, actor, door, ip, action, target_type, target_id,
                                  target, before, after)
    VALUES (gen_random_uuid(), clock_timestamp(), organization, NULL, by, 'database', '', 'history.deleted', relation,
            '', '', NULL, details)
$$;
"""

BACK = """
DROP FUNCTION audit_history_deleted(uuid, text, text, jsonb);
DROP FUNCTION audit_event_erase(uuid, uuid, text[]);
DROP FUNCTION audit_words_marked(jsonb, text[]);
DROP FUNCTION audit_words_marked(text, text[]);
CREATE FUNCTION audit_event_erase(event uuid, new_target text, new_before jsonb, new_after jsonb)
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    line audit_auditevent;
    was bytea;
BEGIN
    SELECT * INTO STRICT line FROM audit_auditevent WHERE id = event FOR UPDATE;
    was := audit_words_digest(line);
    INSERT INTO audit_erasedwords (number, digest, erased_at) VALUES (line.number, was, now())
        ON CONFLICT (number) DO NOTHING;
    PERFORM set_config('agentcore.erasure', 'on', true);
    UPDATE audit_auditevent SET target = new_target, before = new_before, after = new_after, salt = gen_random_uuid()
        WHERE id = event RETURNING * INTO line;
    PERFORM set_config('agentcore.erasure', 'off', true);
    INSERT INTO audit_auditevent
            (id, at, organization_id, actor, door, ip, action, target_type, target_id, target, after)
        VALUES (gen_random_uuid(), clock_timestamp(), line.organization_id, 'system', '', '', 'audit.words_erased',
            'audit.auditevent', event::text, '', jsonb_build_object('line', line.number, 'was', encode(was, 'hex'),
            'now', encode(audit_words_digest(line), 'hex')));
END $$;
REVOKE ALL ON FUNCTION audit_event_erase(uuid, text, jsonb, jsonb) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0009_plain_words"), ("tenancy", "0016_erasure_stays")]
    operations = [
        # The default of the first statement is what the rows have that are there.
        migrations.AddField("erasedwords", "predates_naming", models.BooleanField(default=True)),
        migrations.AlterField("erasedwords", "predates_naming", models.BooleanField(default=False, editable=False)),
        migrations.RunSQL(NAMED, BACK),
    ]
