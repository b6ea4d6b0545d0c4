"""Lines of the log have a number, and are sealed in blocks; an erasure of words keeps their digest and tells of
itself."""

import django.utils.timezone
from django.db import migrations, models

import agentcore_site.audit.models

SEQUENCE = "CREATE SEQUENCE audit_auditevent_number"

WORDS = """
CREATE FUNCTION audit_words_digest(line audit_auditevent) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(uuid_send(line.salt)
        || convert_to(jsonb_build_array(line.target, line.before, line.after)::text, 'UTF8'))
$$;

CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF database_owner_erases(TG_RELID)
           AND to_jsonb(NEW) - 'target' - 'before' - 'after' - 'salt'
             = to_jsonb(OLD) - 'target' - 'before' - 'after' - 'salt' THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: % was refused', TG_OP;
END $$;

CREATE OR REPLACE FUNCTION audit_event_erase(event uuid, new_target text, new_before jsonb, new_after jsonb)
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
    -- With another salt the digest that is kept says nothing about the words any more.
    UPDATE audit_auditevent SET target = new_target, before = new_before, after = new_after, salt = gen_random_uuid()
        WHERE id = event RETURNING * INTO line;
    PERFORM set_config('agentcore.erasure', 'off', true);
    INSERT INTO audit_auditevent
            (id, at, organization_id, actor, door, ip, action, target_type, target_id, target, after)
        VALUES (gen_random_uuid(), clock_timestamp(), line.organization_id, 'system', '', '', 'audit.words_erased',
            'audit.auditevent', event::text, '', jsonb_build_object('line', line.number, 'was', encode(was, 'hex'),
            'now', encode(audit_words_digest(line), 'hex')));
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_seal
    FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_erasedwords
    FOR EACH ROW EXECUTE FUNCTION audit_append_only();
"""

BACK = """
DROP TRIGGER append_only ON audit_erasedwords;
DROP TRIGGER append_only ON audit_seal;
CREATE OR REPLACE FUNCTION audit_event_erase(event uuid, new_target text, new_before jsonb, new_after jsonb)
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('agentcore.erasure', 'on', true);
    UPDATE audit_auditevent SET target = new_target, before = new_before, after = new_after WHERE id = event;
    PERFORM set_config('agentcore.erasure', 'off', true);
END $$;
DROP FUNCTION audit_words_digest(audit_auditevent);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0006_request_id_default"),
    ]

    operations = [
        migrations.RunSQL(SEQUENCE, "DROP SEQUENCE audit_auditevent_number"),
        migrations.CreateModel(
            name="ErasedWords",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("digest", models.BinaryField()),
                ("erased_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.AddField(
            model_name="auditevent",
            name="number",
            field=models.BigIntegerField(
                db_default=models.Func(models.Value("audit_auditevent_number"), function="nextval"),
                editable=False,
                unique=True,
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="salt",
            field=models.UUIDField(db_default=models.Func(function="gen_random_uuid"), editable=False),
        ),
        migrations.CreateModel(
            name="Seal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=20)),
                ("members", agentcore_site.audit.models.MultirangeField()),
                ("top", models.BigIntegerField()),
                ("digests", models.BinaryField()),
                ("previous", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("sealed_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["kind", "-id"], name="seals_by_kind")],
            },
        ),
        migrations.RunSQL(WORDS, BACK),
    ]
