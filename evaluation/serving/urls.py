"""Console pages of production."""

from django.urls import path

from evaluation.serving import views
from evaluation.serving.deployments import views as deployments
from evaluation.serving.keys import views as keys
from evaluation.serving.loop import views as loops
from evaluation.serving.playground import row_views as playground_rows
from evaluation.serving.playground import views as playground
from evaluation.serving.releases import views as skills
from evaluation.serving.returns import views as returns
from evaluation.serving.suites import views as suites
from evaluation.serving.survival import views as survival
from evaluation.serving.traces import views as traces

app_name = "serving"
urlpatterns = [
    path("releases/", views.releases, name="releases"),
    path("releases/<uuid:release_id>/", views.release, name="release"),
    path("releases/<uuid:release_id>/json/", views.release_json, name="release_json"),
    path("releases/<uuid:release_id>/deploy/", deployments.deploy, name="deploy"),
    path("releases/<uuid:release_id>/approve/", deployments.approve, name="approve"),
    path("deployments/", deployments.deployments, name="deployments"),
    path("deployments/<uuid:deployment_id>/", deployments.deployment, name="deployment"),
    *(
        path(
            f"deployments/<uuid:deployment_id>/{action}/",
            deployments.act,
            {"action": action},
            name=f"deployment_{action.replace('-', '_')}",
        )
        for action in deployments.ACTIONS
    ),
    path("agents/<uuid:agent_id>/serving/", deployments.serving, name="serving"),
    path("agents/<uuid:agent_id>/serving/edits/", deployments.edits, name="edits"),
    path("agents/<uuid:agent_id>/serving/back/", deployments.restore, name="restore"),
    path("agents/<uuid:agent_id>/loop/", loops.loop, name="loop"),
    path("agents/<uuid:agent_id>/loop/start/", loops.start, name="loop_start"),
    path("agents/<uuid:agent_id>/return/", returns.returns, name="returns"),
    path("loop-turns/<uuid:turn_id>/stop/", loops.stop, name="loop_stop"),
    path("loop-turns/<uuid:turn_id>/rows/", loops.decide, name="loop_rows"),
    path("playground/", playground.playground, name="playground"),
    path("playground/answer/", playground.answer, name="playground_answer"),
    path("playground/rows/", playground_rows.rows, name="playground_rows"),
    path("playground/cell/", playground_rows.cell, name="playground_cell"),
    path("playground/row/", playground.keep_row, name="playground_row"),
    path("playground/lesson/", playground.keep_lesson, name="playground_lesson"),
    path("playground/prompt/", playground.keep_prompt, name="playground_prompt"),
    path("traces/", traces.traces, name="traces"),
    path("traces/<uuid:production_trace_id>/", traces.trace, name="trace"),
    path("traces/<uuid:production_trace_id>/json/", traces.trace_json, name="trace_json"),
    path("traces/<uuid:production_trace_id>/feedback/", traces.give, name="trace_feedback"),
    path("keys/", keys.keys, name="keys"),
    path("keys/<uuid:key_id>/revoke/", keys.revoke, name="key_revoke"),
    path("releases/<uuid:release_id>/skill/", views.release_as_skill, name="release_skill"),
    path("skills/", skills.skills, name="skills"),
    path("agents/<uuid:agent_id>/skills/import/", skills.skill_bring, name="skill_import"),
    path("releases/<uuid:release_id>/tensorzero/", views.release_tensorzero, name="release_tensorzero"),
    path("agents/<uuid:agent_id>/releases/make/", views.make, name="make"),
    path("agents/<uuid:agent_id>/roll-back/", views.roll_back, name="roll_back"),
    path("checkpoints/<uuid:checkpoint_id>/promote/", views.promote, name="promote"),
    path("suites/", suites.suites, name="suites"),
    path("suites/new/", suites.suite_new, name="suite_new"),
    path("suites/add/", suites.suite_add, name="suite_add"),
    path("suites/<uuid:suite_id>/", suites.suite, name="suite"),
    path("suites/<uuid:suite_id>/version/", suites.suite_version, name="suite_version"),
    path("suites/<uuid:suite_id>/archive/", suites.suite_archived, name="suite_archive"),
    path("suites/<uuid:suite_id>/run/", suites.suite_start, name="suite_start"),
    path("datasets/<uuid:dataset_id>/overlaps/", suites.dataset_overlaps, name="dataset_overlaps"),
    path("suite-runs/<uuid:job_id>/", suites.suite_run, name="suite_run"),
    path("suite-runs/<uuid:job_id>/json/", suites.suite_run_json, name="suite_run_json"),
    path("suite-runs/<uuid:job_id>/cancel/", suites.suite_run_cancel, name="suite_run_cancel"),
    path("suite-runs/<uuid:job_id>/resume/", suites.suite_run_resume, name="suite_run_resume"),
    path("releases/<uuid:release_id>/survival/", survival.survival, name="survival"),
    path("survival-runs/<uuid:job_id>/", survival.survival_run, name="survival_run"),
    path("survival-runs/<uuid:job_id>/cancel/", survival.survival_run_cancel, name="survival_run_cancel"),
    path("survival-runs/<uuid:job_id>/resume/", survival.survival_run_resume, name="survival_run_resume"),
]
