"""Evaluations: what a model answered beside the one it was made from."""

from django.db import models
from django.utils import timezone

from deployments.models.artifact import Artifact
from deployments.models.job import Attempt


class Evaluation(models.Model):
    """One attempt of a job `evaluate`. `measured` is None until its verdict was told; its shape, that of `budget` and
    that of the rows of `answers` are those of deployments/artifacts/judge.py."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="evaluation")
    artifact = models.ForeignKey(Artifact, null=True, on_delete=models.SET_NULL, related_name="evaluations")
    parent = models.ForeignKey(Artifact, null=True, on_delete=models.SET_NULL, related_name="+")
    engine = models.CharField(max_length=20, blank=True, default="")
    passed = models.BooleanField(null=True)
    budget = models.JSONField(default=dict)
    measured = models.JSONField(null=True)
    notes = models.JSONField(default=list)  # [[zh, en]]
    took_s = models.FloatField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"evaluation {self.pk}"


class EvaluationAnswer(models.Model):
    """One prompt and both answers; `data` is Pair.as_json of deployments/artifacts/judge.py."""

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="answers")
    n = models.PositiveSmallIntegerField()
    lang = models.CharField(max_length=2)
    equal = models.BooleanField()
    garbled = models.BooleanField()
    data = models.JSONField()

    class Meta:
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["evaluation", "n"], name="answer_once_per_prompt")]

    def __str__(self) -> str:
        return f"{self.evaluation_id}/{self.n}"
