"""`npu-smi info -t current-fault-event`: the faults that are present now."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "current-fault-event", "-i", "{npu_id}")

parse = _key_values.reader("Fault Event")
