from django.urls import path

from deployments import batch_views, server_views, views

app_name = "deployments"
urlpatterns = [
    path("jobs/", views.job_list, name="job-list"),
    path("jobs.csv", views.job_csv, name="job-csv"),
    # One address: GET shows the form, POST queues the job and shows the form again where that is refused.
    path("jobs/new", views.job_new, name="job-new"),
    path("jobs/new", views.job_new, name="job-create"),
    path("jobs/<int:pk>/", views.job_detail, name="job-detail"),
    path("jobs/<int:pk>/lines", views.job_lines, name="job-lines"),
    path("jobs/<int:pk>/raw", views.job_raw, name="job-raw"),
    path("jobs/<int:pk>/cancel", views.job_cancel, name="job-cancel"),
    path("jobs/<int:pk>/retry", views.job_retry, name="job-retry"),
    path("batches/", batch_views.batch_list, name="batch-list"),
    path("batches/new", batch_views.batch_new, name="batch-new"),
    path("batches/<int:pk>/", batch_views.batch_detail, name="batch-detail"),
    path("batches/<int:pk>/pause", batch_views.batch_pause, name="batch-pause"),
    path("batches/<int:pk>/resume", batch_views.batch_resume, name="batch-resume"),
    path("batches/<int:pk>/stop", batch_views.batch_stop, name="batch-stop"),
    path("batches/<int:pk>/retry", batch_views.batch_retry, name="batch-retry"),
    path("servers/<slug:name>/queue/pause", server_views.queue_pause, name="server-queue-pause"),
    path("servers/<slug:name>/queue/resume", server_views.queue_resume, name="server-queue-resume"),
    path("servers/<slug:name>/maintenance", server_views.maintenance, name="server-maintenance"),
]
