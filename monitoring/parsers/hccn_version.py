"""`hccn_tool -version`: versions of the network driver and firmware."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-version", "-g")

parse = _key_values.reader("Network Driver Version", "Network Firmware Version")
