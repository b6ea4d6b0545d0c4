"""Console pages of budgets."""

from django.urls import path

from budgets.views import budget, chain, overview, prices, settings, usage_files

app_name = "budgets"
urlpatterns = [
    path("budgets/", overview.overview, name="budgets"),
    path("budgets/breakdown/csv/", overview.breakdown_csv, name="breakdown_csv"),
    path("budgets/new/", budget.new, name="new"),
    path("budgets/<int:budget_id>/", budget.budget, name="budget"),
    path("budgets/<int:budget_id>/limit/", budget.limit, name="limit"),
    path("budgets/<int:budget_id>/csv/", budget.ledger, name="ledger_csv"),
    path("budgets/of-job/<uuid:job_id>/", chain.chain, name="chain"),
    path("budgets/of-job/<uuid:job_id>/ask/", chain.ask, name="ask"),
    path("budgets/prices/", prices.prices, name="prices"),
    path("budgets/prices/set/", prices.set_price, name="price_set"),
    path("budgets/reconcile/", usage_files.reconcile, name="reconcile"),
    path("budgets/settings/", settings.settings, name="settings"),
    path("budgets/settings/secret/", settings.secret, name="secret"),
]
