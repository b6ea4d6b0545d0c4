"""Rows that are written under another key say what they said: nothing is published."""

from django.db import migrations

TRIGGER = """
DROP TRIGGER events_rewarded ON experiences_trajectory;
CREATE TRIGGER events_rewarded AFTER UPDATE ON experiences_trajectory
    REFERENCING NEW TABLE AS noted FOR EACH STATEMENT{when} EXECUTE FUNCTION events_note_rewards();
"""
WHEN = " WHEN (current_setting('agentcore.not_news', true) IS DISTINCT FROM 'on')"


class Migration(migrations.Migration):
    dependencies = [("events", "0006_request_sequence")]
    operations = [migrations.RunSQL(TRIGGER.format(when=WHEN), TRIGGER.format(when=""))]
