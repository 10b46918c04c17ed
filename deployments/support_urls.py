"""Pages of support bundles, and what servers send for them."""

from django.urls import path

from deployments.views import support_pages

urlpatterns = [
    path("join/support", support_pages.support_receive, name="join-support"),
    path("support-bundles/", support_pages.support_list, name="support-list"),
    path("support-bundles/new", support_pages.support_new, name="support-new"),
    path("support-bundles/<int:pk>/", support_pages.support_detail, name="support-detail"),
    path("support-bundles/<int:pk>/download", support_pages.support_download, name="support-download"),
    path("support-bundles/<int:pk>/describe", support_pages.support_describe, name="support-describe"),
    path("support-bundles/<int:pk>/delete", support_pages.support_delete, name="support-delete"),
]
