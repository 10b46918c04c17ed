"""`npu-smi info -t tls-cert-period`: how long before its end a certificate is reported."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "tls-cert-period", "-i", "{npu_id}")

parse = _key_values.reader("Certificate validity")
