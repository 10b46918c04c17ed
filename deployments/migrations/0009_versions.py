from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployments", "0008_inventory"),
    ]

    operations = [
        migrations.AddField("server", "agent_version", models.CharField(blank=True, default="", max_length=40)),
        migrations.AddField("server", "agent_code", models.CharField(blank=True, default="", max_length=16)),
        migrations.AddField("server", "agent_protocol", models.PositiveSmallIntegerField(default=1)),
        # What was made before this migration keeps the bytes that its server may have seen already.
        migrations.AddField("attempt", "protocol", models.PositiveSmallIntegerField(default=1)),
        migrations.AlterField("attempt", "protocol", models.PositiveSmallIntegerField(default=2)),
    ]
