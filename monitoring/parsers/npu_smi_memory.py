"""`npu-smi info -t memory`: capacity and clock of DDR and HBM."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "memory", "-i", "{npu_id}")

parse = _key_values.reader("DDR Capacity", "HBM Capacity", "Memory Capacity", "DDR Clock", "HBM Clock")
