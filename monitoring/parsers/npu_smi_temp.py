"""`npu-smi info -t temp`: temperature of a chip in degrees Celsius."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "temp", "-i", "{npu_id}")

parse = _key_values.reader("Temperature")
