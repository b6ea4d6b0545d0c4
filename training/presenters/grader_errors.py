"""Error rates of graders as programs read them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class GraderErrorsOut(serializers.Serializer[Any]):
    """Of a scorer, by a sample of its verdicts that people judged. Intervals are Wilson's, of 95 %."""

    scorer = serializers.CharField()
    judged = serializers.IntegerField(help_text="Answers that people judged.")
    right = serializers.IntegerField(help_text="Of these, right by people.")
    wrong = serializers.IntegerField()
    false_positives = serializers.IntegerField(help_text="Wrong answers that the scorer called right.")
    false_positive_rate = serializers.FloatField(allow_null=True, help_text="Of wrong answers; null without one.")
    false_positive_low = serializers.FloatField(source="false_positive_interval.low")
    false_positive_high = serializers.FloatField(source="false_positive_interval.high")
    false_negatives = serializers.IntegerField(help_text="Right answers that the scorer called wrong.")
    false_negative_rate = serializers.FloatField(allow_null=True, help_text="Of right answers; null without one.")
    false_negative_low = serializers.FloatField(source="false_negative_interval.low")
    false_negative_high = serializers.FloatField(source="false_negative_interval.high")
