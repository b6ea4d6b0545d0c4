from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("site_roof", "0002_sitefact"),
    ]

    operations = [
        migrations.CreateModel(
            name="TableSize",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("name", models.CharField(max_length=63)),
                ("size", models.BigIntegerField()),
            ],
            options={
                "ordering": ["day", "name"],
                "constraints": [models.UniqueConstraint(fields=("day", "name"), name="one_reading_a_day")],
            },
        ),
    ]
