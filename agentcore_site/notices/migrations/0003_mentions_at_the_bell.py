"""Mentions at the bell of people who saved their settings before mentions were a type."""

from django.db import migrations

ADD = """
UPDATE notices_noticepreferences SET bell = array_append(bell, 'comment.mentioned')
WHERE NOT 'comment.mentioned' = ANY(bell)
"""


class Migration(migrations.Migration):
    dependencies = [("notices", "0002_words_of_preferences")]

    operations = [migrations.RunSQL(ADD, migrations.RunSQL.noop)]
