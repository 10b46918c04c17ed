"""`hccn_tool -peak_bw`: the highest traffic over some seconds."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-peak_bw", "-g")

parse = _key_values.reader("Peak Bandwidth")
