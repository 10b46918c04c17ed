"""`hccn_tool -stat`: packet counters of a port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-stat", "-g")

parse = _key_values.reader("roce_", "mac_", "nic_", "port_id")
