"""`npu-smi info -t product`: the product a card is sold as."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "product", "-i", "{npu_id}")

parse = _key_values.reader("Product")
