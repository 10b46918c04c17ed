"""`hccn_tool -bandwidth`: traffic of the RoCE port at this moment."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-bandwidth", "-g")

parse = _key_values.reader("Bandwidth")
