"""Console pages of the dashboards."""

from django.urls import path

from evaluation.warehouse import health, views  # noqa: F401  (registers a check)

app_name = "warehouse"
urlpatterns = [
    path("dashboards/", views.dashboard, name="dashboards"),
    path("dashboards/<slug:key>/", views.dashboard, name="dashboard"),
    path("dashboards/<slug:key>/<slug:chart>.csv", views.chart_data, name="chart_data"),
]
