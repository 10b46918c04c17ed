"""`npu-smi -v`: the version of the tool."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "-v")

parse = _key_values.reader("npu-smi version")
