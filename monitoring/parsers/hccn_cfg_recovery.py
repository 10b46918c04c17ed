"""`hccn_tool -cfg_recovery`: whether the settings of a device were recovered."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-cfg_recovery", "-g")

parse = _key_values.reader("config status")
