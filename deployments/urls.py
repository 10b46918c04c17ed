from django.urls import path

from deployments.views import (
    batch_pages,
    job_changes,
    job_detail,
    job_list,
    job_log,
    joining,
    server_switches,
)

app_name = "deployments"
urlpatterns = [
    path("jobs/", job_list.job_list, name="job-list"),
    path("jobs.csv", job_list.job_csv, name="job-csv"),
    # One address: GET shows the form, POST queues the job and shows the form again where that is refused.
    path("jobs/new", job_changes.job_new, name="job-new"),
    path("jobs/new", job_changes.job_new, name="job-create"),
    path("jobs/<int:pk>/", job_detail.job_detail, name="job-detail"),
    path("jobs/<int:pk>/lines", job_log.job_lines, name="job-lines"),
    path("jobs/<int:pk>/raw", job_log.job_raw, name="job-raw"),
    path("jobs/<int:pk>/cancel", job_changes.job_cancel, name="job-cancel"),
    path("jobs/<int:pk>/retry", job_changes.job_retry, name="job-retry"),
    path("servers/join/", joining.join_new, name="join-new"),
    path("servers/join/<int:pk>/", joining.join_detail, name="join-detail"),
    path("servers/join/<int:pk>/copied", joining.join_copied, name="join-copied"),
    path("servers/join/<int:pk>/withdraw", joining.join_withdraw, name="join-withdraw"),
    path("servers/<slug:name>/leave", joining.server_leave, name="server-leave"),
    path("join/left", joining.left, name="join-left"),
    path("join/code", joining.code, name="join-code"),
    path("join/<str:token>", joining.script, name="join-script"),
    path("join/<str:token>/agent.tar.gz", joining.agent, name="join-agent"),
    path("join/<str:token>/runtime/<str:machine>", joining.runtime, name="join-runtime"),
    path("join/<str:token>/config", joining.config, name="join-config"),
    path("join/<str:token>/state", joining.state, name="join-state"),
    path("join/<str:token>/problem", joining.problem, name="join-problem"),
    path("batches/", batch_pages.batch_list, name="batch-list"),
    path("batches/new", batch_pages.batch_new, name="batch-new"),
    path("batches/<int:pk>/", batch_pages.batch_detail, name="batch-detail"),
    path("batches/<int:pk>/pause", batch_pages.batch_pause, name="batch-pause"),
    path("batches/<int:pk>/resume", batch_pages.batch_resume, name="batch-resume"),
    path("batches/<int:pk>/stop", batch_pages.batch_stop, name="batch-stop"),
    path("batches/<int:pk>/retry", batch_pages.batch_retry, name="batch-retry"),
    path("servers/<slug:name>/queue/pause", server_switches.queue_pause, name="server-queue-pause"),
    path("servers/<slug:name>/queue/resume", server_switches.queue_resume, name="server-queue-resume"),
    path("servers/<slug:name>/maintenance", server_switches.maintenance, name="server-maintenance"),
]
