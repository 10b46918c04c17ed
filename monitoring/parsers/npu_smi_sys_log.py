"""`npu-smi info -t sys-log-info`: how the device's logs are dumped."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "sys-log-info", "-i", "{npu_id}")

parse = _key_values.reader("Current syslog")
