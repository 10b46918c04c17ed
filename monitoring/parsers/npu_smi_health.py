"""`npu-smi info -t health`: health in one word, with the codes of the faults behind it."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "health", "-i", "{npu_id}")

parse = _key_values.reader("Health")
