from django.apps import AppConfig


class EvaluationConfig(AppConfig):
    name = "evaluation"

    def ready(self) -> None:
        from evaluation import erasure, job_kind, receivers  # noqa: F401  (registers the kind, listens for checkpoints)
