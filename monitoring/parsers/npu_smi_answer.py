"""The answer of npu-smi commands that change something: `set`, `clear`, `upgrade`."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "set", "-t", "{type}", "-i", "{npu_id}")

parse = _key_values.reader("Status", "Message", "Warning")
