"""`hccn_tool -process`: whether the communication process of a device lives."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-process", "-g")

parse = _key_values.reader("device hccp process")
