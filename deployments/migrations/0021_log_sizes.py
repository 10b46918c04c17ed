"""What each log takes, counted once from its chunks."""

from django.db import migrations, models
from django.db.models import Sum
from django.db.models.functions import Length

LOGS = 200
CHUNKS = {"Attempt": "LogChunk", "EngineLog": "EngineChunk", "AgentLog": "AgentChunk"}


def count(apps, schema_editor):
    """A few logs at a time; those that have a size already are counted again with the same result."""
    for name, owner in (("Attempt", "attempt"), ("EngineLog", "log"), ("AgentLog", "log")):
        heads = apps.get_model("deployments", name)._base_manager
        chunks = apps.get_model("deployments", CHUNKS[name])._base_manager
        last = ""
        while keys := list(heads.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:LOGS]):
            last = keys[-1]
            found = chunks.filter(**{f"{owner}__in": keys}).order_by().values_list(owner)
            for pk, size in found.annotate(size=Sum(Length("data"))):
                heads.filter(pk=pk).update(kept_bytes=size)


def columns(name):
    return [
        migrations.AddField(model_name=name, name="kept_bytes", field=models.PositiveBigIntegerField(default=0)),
        migrations.AddField(model_name=name, name="pruned_at", field=models.DateTimeField(blank=True, null=True)),
    ]


class Migration(migrations.Migration):
    dependencies = [("deployments", "0020_support_bundles")]

    operations = [
        *columns("attempt"),
        *columns("enginelog"),
        *columns("agentlog"),
        migrations.RunPython(count, migrations.RunPython.noop),
    ]
