from django.apps import AppConfig


class WarehouseConfig(AppConfig):
    name = "evaluation.warehouse"

    def ready(self) -> None:
        from evaluation.warehouse import erasure, retention  # noqa: F401  (where personal data may be, and what ages)
