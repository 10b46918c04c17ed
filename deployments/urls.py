from django.urls import path

from deployments import views

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
]
