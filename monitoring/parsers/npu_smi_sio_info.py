"""`npu-smi info -t sio-info`: errors on the link between the dies of one chip."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "sio-info", "-i", "{npu_id}")

parse = _key_values.reader("TX Error", "RX Error")
