"""`hccn_tool -bit_err`: bit errors of a port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-bit_err", "-g")

parse = _key_values.reader("st_fec")
