"""`npu-smi info -t common`: the figures at a glance: usage, frequency, temperature, power."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "common", "-i", "{npu_id}")

parse = _key_values.reader("Aicore")
