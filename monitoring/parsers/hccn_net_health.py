"""`hccn_tool -net_health`: whether the port reaches the address that is pinged."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-net_health", "-g")

parse = _key_values.reader("net health status")
