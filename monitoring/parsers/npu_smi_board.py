"""`npu-smi info -t board`: identity of a card or, with `-c`, of one chip: versions, bus, ids."""

from monitoring.parsers import _key_values

COMMAND = ("npu-smi", "info", "-t", "board", "-i", "{npu_id}")

parse = _key_values.reader("Board ID", "PCIe Bus Info", "Chip Name")
