"""The REST API: one NinjaAPI, to which each app adds its router."""

from ninja import NinjaAPI

api = NinjaAPI(title="Ascend Console", version="1", urls_namespace="api")
