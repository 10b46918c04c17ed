"""`hccn_tool -vnic`: address and link of the virtual port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-vnic", "-g")

parse = _key_values.reader("vnic ")
