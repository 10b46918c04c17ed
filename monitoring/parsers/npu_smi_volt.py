"""`npu-smi info -t volt`: voltage of a chip."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "volt", "-i", "{npu_id}")

parse = _key_values.reader("Voltage")
