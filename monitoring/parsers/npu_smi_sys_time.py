"""`npu-smi info -t sys-time`: the clock of the device."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "sys-time", "-i", "{npu_id}")

parse = _key_values.reader("System Time")
