"""`hccn_tool -ip`: address and netmask of the RoCE port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-ip", "-g")

parse = _key_values.reader("ipaddr")
