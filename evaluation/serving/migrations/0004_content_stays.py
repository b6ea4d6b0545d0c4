"""What was asked and answered in production never changes; what is worked out of it may. Timelines only grow."""

from django.db import migrations

GUARD = """
CREATE FUNCTION serving_trace_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - '{safety,reward,components}'::text[] = to_jsonb(OLD) - '{safety,reward,components}'::text[] THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was asked and answered in production never changes';
END $$;
CREATE TRIGGER content_stays BEFORE UPDATE ON serving_productiontrace
    FOR EACH ROW EXECUTE FUNCTION serving_trace_stays();

CREATE FUNCTION serving_line_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - 'by_id' = to_jsonb(OLD) - 'by_id' THEN
        RETURN NEW;  -- an account was deleted
    END IF;
    RAISE EXCEPTION 'a line of a timeline never changes';
END $$;
CREATE TRIGGER line_stays BEFORE UPDATE ON serving_deploymentevent
    FOR EACH ROW EXECUTE FUNCTION serving_line_stays();
"""

BACK = """
DROP TRIGGER line_stays ON serving_deploymentevent;
DROP FUNCTION serving_line_stays();
DROP TRIGGER content_stays ON serving_productiontrace;
DROP FUNCTION serving_trace_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0003_production")]
    operations = [migrations.RunSQL(GUARD, BACK)]
