"""The amount of a key's spending ends in ``_micros``. Its column, which a trigger writes, keeps its name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("serving", "0020_words_of_judges")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameField("keyspending", "micros", "spent_micros"),
                migrations.AlterField("keyspending", "spent_micros", models.BigIntegerField(db_column="micros")),
            ]
        )
    ]
