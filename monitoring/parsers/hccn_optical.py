"""`hccn_tool -optical`: the optical module: presence, temperature, light, thresholds."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-optical", "-g")

parse = _key_values.reader("present", "Tx Power")
