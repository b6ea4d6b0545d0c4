from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "budgets"

    def ready(self) -> None:
        from budgets import erasure  # noqa: F401  (says where personal data may stand)
