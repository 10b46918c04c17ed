"""`npu-smi info -t sensors`: temperatures by place on the card."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "sensors", "-i", "{npu_id}")

parse = _key_values.reader("Soc Max", "SFP Temp", "NDIE Temp", "HBM Temp")
