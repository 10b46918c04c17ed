"""`/etc/os-release`: the distribution of the host and its version."""

from monitoring.parsers import _key_values

COMMAND = "/etc/os-release"

parse = _key_values.reader("NAME", "ID", "PRETTY_NAME", separator="=")
