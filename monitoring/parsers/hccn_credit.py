"""`hccn_tool -credit`: credits left on a port."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-credit", "-g")

parse = _key_values.reader("link_alloc", "link_cur")
