from django.urls import URLPattern

app_name = "deployments"
urlpatterns: list[URLPattern] = []
