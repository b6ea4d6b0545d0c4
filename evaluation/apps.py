from django.apps import AppConfig


class EvaluationConfig(AppConfig):
    name = "evaluation"

    def ready(self) -> None:
        # They register the kind and the retention, and listen for checkpoints.
        from evaluation import erasure, graded, job_kind, receivers, retention  # noqa: F401
