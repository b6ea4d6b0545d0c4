"""What was asked and answered may be encrypted, decrypted, and encrypted by another key; what it says stays."""

from django.db import migrations

FUNCTION = """
CREATE OR REPLACE FUNCTION serving_trace_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    later text[] := '{safety,reward,components}';
BEGIN{more}
    IF to_jsonb(NEW) - later = to_jsonb(OLD) - later THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was asked and answered in production never changes';
END $$;
"""

ENCRYPTED = "".join(
    f"""
    IF encryption_version(NEW.{one}) <> encryption_version(OLD.{one}) THEN later := later || '{one}'::text; END IF;"""
    for one in ("request", "response", "sampled")
)


class Migration(migrations.Migration):
    dependencies = [("serving", "0018_edits_limits"), ("encryption", "0001_initial")]
    operations = [migrations.RunSQL(FUNCTION.replace("{more}", ENCRYPTED), FUNCTION.replace("{more}", ""))]
