"""Rows that are written under another key say what they said: nothing is filled anew."""

from django.db import migrations

TRIGGER = """
DROP TRIGGER warehouse_noted_change ON experiences_trajectory;
CREATE TRIGGER warehouse_noted_change AFTER UPDATE ON experiences_trajectory
    REFERENCING NEW TABLE AS noted FOR EACH STATEMENT{when} EXECUTE FUNCTION warehouse_note_trajectories();
"""
WHEN = " WHEN (current_setting('agentcore.not_news', true) IS DISTINCT FROM 'on')"


class Migration(migrations.Migration):
    dependencies = [("warehouse", "0001_measures")]
    operations = [migrations.RunSQL(TRIGGER.format(when=WHEN), TRIGGER.format(when=""))]
