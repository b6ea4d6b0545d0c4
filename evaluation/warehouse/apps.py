from django.apps import AppConfig


class WarehouseConfig(AppConfig):
    name = "evaluation.warehouse"

    def ready(self) -> None:
        from evaluation.warehouse import erasure  # noqa: F401  (says where personal data may be)
