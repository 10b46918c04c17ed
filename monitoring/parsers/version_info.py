"""`version.info` of the driver or of the firmware: its own version and those it goes with."""

from monitoring.parsers import _key_values

COMMAND = "/usr/local/Ascend/driver/version.info, /usr/local/Ascend/firmware/version.info"

parse = _key_values.reader("Version", "package_version", separator="=")
