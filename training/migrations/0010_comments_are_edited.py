from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0009_notes")]

    operations = [
        migrations.AddField("jobcomment", "edited_at", models.DateTimeField(editable=False, null=True)),
    ]
