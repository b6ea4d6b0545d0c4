"""A lesson may be an exemplar: a piece of an attempt that went well."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiences", "0013_reflector"),
    ]

    operations = [
        migrations.AddField(
            model_name="experience",
            name="kind",
            field=models.CharField(
                choices=[("experience", "Lesson"), ("exemplar", "Exemplar")], default="experience", max_length=10
            ),
        ),
    ]
