"""`npu-smi info -t ecc-enable`: whether error correction is switched on."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "ecc-enable", "-i", "{npu_id}")

parse = _key_values.reader("HBM ECC-Enable", "DDR ECC-Enable")
