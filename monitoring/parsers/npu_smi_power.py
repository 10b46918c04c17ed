"""`npu-smi info -t power`: power of a card."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "power", "-i", "{npu_id}")

parse = _key_values.reader("NPU Real-time Power", "Power")
