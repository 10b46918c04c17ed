"""`hccn_tool -show_list`: how many queue resources are in use."""

from monitoring.parsers import _key_values

COMMAND = ("hccn_tool", "-i", "{device_index}", "-show_list", "-g")

parse = _key_values.reader("seg_cnt", "jfs_cnt", "jetty_cnt")
