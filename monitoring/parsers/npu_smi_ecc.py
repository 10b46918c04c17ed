"""`npu-smi info -t ecc`: memory errors that were corrected (single bit) and that were not (double bit)."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "ecc", "-i", "{npu_id}")

parse = _key_values.reader("HBM Single", "HBM Double", "DDR Single", "DDR Double")
