from django.urls import path

from monitoring import alert_views, diagnosis_views, exporters, plot_views, site_rule_views, stack_views, views

app_name = "monitoring"
urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("fleet.json", views.fleet_json, name="fleet-json"),
    path("fleet.csv", views.fleet_csv, name="fleet-csv"),
    path("fleet/jobs.json", views.fleet_jobs, name="fleet-jobs"),
    path("servers/", views.server_list, name="server-list"),
    path("servers/<slug:name>/", views.server_detail, name="server-detail"),
    path("servers/<slug:name>/facts", views.server_facts, name="server-facts"),
    path("servers/<slug:name>/plots/", plot_views.server_plots, name="server-plots"),
    path("servers/<slug:name>/plots/data.json", plot_views.server_plots_data, name="server-plots-data"),
    path("servers/<slug:name>/plots/data.csv", plot_views.server_plots_csv, name="server-plots-csv"),
    path("servers/<slug:name>/now.json", views.server_now, name="server-now"),
    path("alerts/", alert_views.alert_list, name="alert-list"),
    path("alerts/counts.json", alert_views.alert_counts, name="alert-counts"),
    path("alerts/<int:pk>/resolve", alert_views.alert_resolve, name="alert-resolve"),
    path("diagnoses/", diagnosis_views.diagnosis_list, name="diagnosis-list"),
    path("diagnoses/site/", site_rule_views.site_rules_page, name="site-rules"),
    path("diagnoses/<int:pk>/judge", diagnosis_views.diagnosis_judge, name="diagnosis-judge"),
    path("stacks/", stack_views.stack_list, name="stack-list"),
    path("stacks/<str:name>/", stack_views.stack_detail, name="stack-detail"),
    path("stacks/<str:name>/plan/<slug:server>/", stack_views.stack_plan, name="stack-plan"),
    path("palette.json", views.palette, name="palette"),
    path("metrics", exporters.metrics, name="metrics"),
    path("demo/remove", views.demo_remove, name="demo-remove"),
]
