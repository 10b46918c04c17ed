"""`hccn_tool -show_res`: one queue resource."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-show_res", "-g")

parse = _key_values.reader("jfr_id", "jfs_id", "jfc_id", "jetty_id")
