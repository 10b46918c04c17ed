"""`hccn_tool -link`: whether the link of the port is up."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-link", "-g")

parse = _key_values.reader("link status")
