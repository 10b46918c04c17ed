"""`npu-smi info -t tls-cert`: the certificate of a device."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "tls-cert", "-i", "{npu_id}")

parse = _key_values.reader("Alarm status", "Start time", "Common name")
