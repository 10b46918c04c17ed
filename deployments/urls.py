from django.urls import path

<<<<<<< HEAD
from deployments import join_views, views
=======
from deployments.views import job_changes, job_detail, job_list, job_log
>>>>>>> main

app_name = "deployments"
urlpatterns = [
    path("jobs/", job_list.job_list, name="job-list"),
    path("jobs.csv", job_list.job_csv, name="job-csv"),
    # One address: GET shows the form, POST queues the job and shows the form again where that is refused.
<<<<<<< HEAD
    path("jobs/new", views.job_new, name="job-new"),
    path("jobs/new", views.job_new, name="job-create"),
    path("jobs/<int:pk>/", views.job_detail, name="job-detail"),
    path("jobs/<int:pk>/lines", views.job_lines, name="job-lines"),
    path("jobs/<int:pk>/raw", views.job_raw, name="job-raw"),
    path("jobs/<int:pk>/cancel", views.job_cancel, name="job-cancel"),
    path("jobs/<int:pk>/retry", views.job_retry, name="job-retry"),
    path("servers/join/", join_views.join_new, name="join-new"),
    path("servers/join/<int:pk>/", join_views.join_detail, name="join-detail"),
    path("servers/join/<int:pk>/copied", join_views.join_copied, name="join-copied"),
    path("servers/join/<int:pk>/withdraw", join_views.join_withdraw, name="join-withdraw"),
    path("servers/<slug:name>/leave", join_views.server_leave, name="server-leave"),
    path("join/left", join_views.left, name="join-left"),
    path("join/<str:token>", join_views.script, name="join-script"),
    path("join/<str:token>/agent.tar.gz", join_views.agent, name="join-agent"),
    path("join/<str:token>/runtime/<str:machine>", join_views.runtime, name="join-runtime"),
    path("join/<str:token>/config", join_views.config, name="join-config"),
    path("join/<str:token>/state", join_views.state, name="join-state"),
    path("join/<str:token>/problem", join_views.problem, name="join-problem"),
=======
    path("jobs/new", job_changes.job_new, name="job-new"),
    path("jobs/new", job_changes.job_new, name="job-create"),
    path("jobs/<int:pk>/", job_detail.job_detail, name="job-detail"),
    path("jobs/<int:pk>/lines", job_log.job_lines, name="job-lines"),
    path("jobs/<int:pk>/raw", job_log.job_raw, name="job-raw"),
    path("jobs/<int:pk>/cancel", job_changes.job_cancel, name="job-cancel"),
    path("jobs/<int:pk>/retry", job_changes.job_retry, name="job-retry"),
>>>>>>> main
]
