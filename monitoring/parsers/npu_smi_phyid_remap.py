"""`npu-smi info -t phyid-remap`: the NPU and chip behind a physical id."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "phyid-remap", "-i", "{npu_id}")

parse = _key_values.reader("Chip Phy-ID")
