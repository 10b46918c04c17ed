"""`hccn_tool -fec`: the error correction of a port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-fec", "-g")

parse = _key_values.reader("fec mode")
