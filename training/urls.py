"""Console pages of training."""

from django.urls import path

from training.views import annotated, checkpoints, datasets, jobs, launch, notes, shared

app_name = "training"
urlpatterns = [
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("jobs/<uuid:job_id>/status/", jobs.status, name="status"),
    path("jobs/<uuid:job_id>/series/", jobs.series, name="series"),
    path("jobs/<uuid:job_id>/pause/", jobs.pause, name="pause"),
    path("jobs/<uuid:job_id>/resume/", jobs.resume, name="resume"),
    path("jobs/<uuid:job_id>/cancel/", jobs.cancel, name="cancel"),
    path("jobs/<uuid:job_id>/share/", jobs.share, name="share"),
    path("jobs/<uuid:job_id>/unshare/", jobs.unshare, name="unshare"),
    path("jobs/<uuid:job_id>/unshare/<uuid:link_id>/", jobs.unshare_one, name="unshare_one"),
    path("jobs/columns/", notes.columns, name="columns"),
    path("jobs/<uuid:job_id>/note/", notes.note, name="note"),
    path("jobs/<uuid:job_id>/pin/", notes.pin, name="pin"),
    path("jobs/<uuid:job_id>/unpin/", notes.unpin, name="unpin"),
    path("jobs/<uuid:job_id>/comments/", notes.comment, name="comment"),
    path("jobs/<uuid:job_id>/comments/<uuid:comment_id>/edit/", notes.recomment, name="comment_edit"),
    path("jobs/<uuid:job_id>/comments/<uuid:comment_id>/remove/", notes.uncomment, name="comment_remove"),
    path("datasets/", datasets.datasets, name="datasets"),
    path("datasets/new/", datasets.new, name="dataset_new"),
    path("datasets/annotated/", annotated.new, name="annotated_new"),
    path("datasets/<uuid:dataset_id>/", datasets.dataset, name="dataset"),
    path("datasets/<uuid:dataset_id>/checks/", datasets.checks, name="dataset_checks"),
    path("datasets/<uuid:dataset_id>/edit/", datasets.edit, name="dataset_edit"),
    path("datasets/<uuid:dataset_id>/archive/", datasets.archive, name="dataset_archive"),
    path("datasets/<uuid:dataset_id>/restore/", datasets.restore, name="dataset_restore"),
    path("datasets/<uuid:dataset_id>/download/", datasets.download, name="dataset_download"),
    path("launch/", launch.launch, name="launch"),
    path("launch/plan/", launch.plan, name="plan"),
    path("launch/data/", launch.data, name="data"),
    path("launch/settings/", launch.settings, name="settings"),
    path("launch/upload/", launch.upload, name="upload"),
    path("launch/domain/", launch.domain, name="domain"),
    path("checkpoints/", checkpoints.checkpoints, name="checkpoints"),
    path("agents/<uuid:agent_id>/checkpoints/upload/", checkpoints.upload, name="upload_checkpoint"),
    path("checkpoints/compare/", checkpoints.compare, name="compare"),
    path("checkpoints/<uuid:checkpoint_id>/tags/", checkpoints.tags, name="tags"),
    path("checkpoints/<uuid:checkpoint_id>/download/", checkpoints.download, name="download"),
    path("shared/<str:token>/", shared.job, name="shared"),
    path("shared/<str:token>/status/", shared.status, name="shared_status"),
    path("shared/<str:token>/series/", shared.series, name="shared_series"),
]
