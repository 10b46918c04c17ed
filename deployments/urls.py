from django.urls import path

from deployments.views import job_changes, job_detail, job_list, job_log

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
]
