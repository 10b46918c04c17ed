"""`npu-smi info -t usages`: usage rates in percent, and capacities."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "usages", "-i", "{npu_id}")

parse = _key_values.reader("HBM Capacity", "DDR Capacity", "Aicore Usage")
