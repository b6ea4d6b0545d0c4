"""Console pages of evaluation."""

from django.urls import path

from evaluation.views import comparison, evaluations

app_name = "evaluation"
urlpatterns = [
    path("evaluations/", evaluations.evaluations, name="evaluations"),
    path("evaluations/start/", evaluations.start, name="start"),
    path("evaluations/<uuid:job_id>/", evaluations.report, name="report"),
    path("evaluations/<uuid:job_id>/json/", evaluations.report_json, name="report_json"),
    path("evaluations/<uuid:job_id>/cancel/", evaluations.cancel, name="cancel"),
    path("evaluations/<uuid:job_id>/resume/", evaluations.resume, name="resume"),
    path("jobs/compare/", comparison.compare, name="compare"),
    path("jobs/chosen/", comparison.chosen, name="chosen"),
    path("jobs/landscape/", comparison.landscape, name="landscape"),
    path("jobs/<uuid:job_id>/evaluations/", evaluations.of_run, name="of_run"),
]
