"""The header of a table says what its rows hold, whatever its columns are called and wherever they stand."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.parsers import ParseError, _info_by_row, _info_whole, failures, npu_smi_info
from monitoring.parsers.npu_smi_info import Info, Npu, Process

FIXTURES = Path(__file__).parents[1] / "fixtures" / "npu_smi"


def rows_of(npu):
    """The words of a card row and of a chip row, by cell."""
    show = ["NA" if value is None else str(value) for value in npu]
    pages, memory, hbm = (f"{show[at]:<5}/ {show[at + 1]}" for at in (7, 11, 13))
    return [
        [[show[0], show[3]], [show[4]], [show[5], show[6], pages]],
        [[show[1], show[2]], [show[9]], [show[10], memory, hbm]],
    ]


TITLES = [
    [["NPU", "Name"], ["Health"], ["Power(W)", "Temp(C)", "Hugepages-Usage(page)"]],
    [["Chip", "Phy-ID"], ["Bus-Id"], ["AICore(%)", "Memory-Usage(MB)", "HBM-Usage(MB)"]],
]


def render(npus, processes=(), *, titles=None, gap=4, extra=None, borders=True):
    """A table of the readings; `titles` renames columns, `extra` is a title, a value and a place among the card's."""
    titles = titles or {}
    header = [[[titles.get(word, word) for word in cell] for cell in row] for row in TITLES]
    records = [header, *map(rows_of, npus)]
    if extra:
        for at, (card, _) in enumerate(records):
            card[2].insert(extra[2], extra[1] if at else extra[0])
    width = max(len(word) for rows in records for row in rows for cell in row for word in cell) + gap
    cells = [max(len(row[cell]) for row in header) * width for cell in range(3)]
    border = "+" + "+".join("=" * (cell + 1) for cell in cells) + "+"
    out = [border, "| npu-smi 25.9.9  Version: 25.9.9 |", border]
    for rows in records:
        for row in rows:
            printed = ["".join(word.ljust(width) for word in cell) for cell in row]
            out.append("| " + "| ".join(cell.ljust(size) for cell, size in zip(printed, cells, strict=True)) + "|")
        out.append(border)
    if processes:
        ids = f"{titles.get('NPU', 'NPU')}  {titles.get('Chip', 'Chip')}"
        out += [f"| {ids} | {titles.get('Process id', 'Process id')} | Process name | Process memory(MB) |", border]
        out += [f"| {p.npu}  {p.chip} | {p.pid} | {p.name} | {p.memory_mb} |" for p in processes] + [border]
    return "\n".join(text for text in out if borders or text[0] == "|") + "\n"


counts = st.integers(0, 10**9)
words = st.text(
    st.characters(codec="utf-8", exclude_characters="|", categories=("L", "N", "P", "S")), min_size=1, max_size=20
)
npu_readings = st.builds(
    Npu,
    npu=st.integers(0, 40_000),
    chip=st.integers(0, 15),
    phy_id=st.integers(0, 63),
    name=words.filter(lambda name: name not in {"-", "--", "NA", "N/A", "na", "n/a"}),
    health=st.sampled_from(["OK", "Warning", "Alarm", "Critical", "UNKNOWN", None]),
    power_w=st.none() | st.integers(0, 9999).map(lambda tenths: tenths / 10),
    temp_c=st.none() | st.integers(-40, 120),
    hugepages_used=counts,
    hugepages_total=counts,
    bus_id=st.none() | st.integers(0, 255).map(lambda bus: f"0000:{bus:02X}:00.0"),
    aicore_pct=st.none() | st.integers(0, 100),
    memory_used_mb=counts,
    memory_total_mb=counts,
    hbm_used_mb=counts,
    hbm_total_mb=counts,
)
tables = st.lists(npu_readings, min_size=1, max_size=8, unique_by=lambda npu: (npu.npu, npu.chip))
process_lists = st.lists(
    st.builds(Process, npu=counts, chip=st.integers(0, 15), pid=counts, name=st.just("") | words, memory_mb=counts),
    max_size=5,
)

RENAMED = {
    "NPU": "NPU ID",
    "Chip": "Chip ID",
    "Phy-ID": "Phy-Id",
    "Health": "Health Status",
    "Power(W)": "NPU Real-time Power(W)",
    "Temp(C)": "Temperature (C)",
    "AICore(%)": "NPU Util(%)",
    "Bus-Id": "PCIe Bus ID",
    "Memory-Usage(MB)": "DDR Usage(MB)",
    "HBM-Usage(MB)": "HBM_Usage (MB)",
    "Process id": "Process ID",
}


@settings(deadline=None)
@given(tables, process_lists, st.integers(2, 30), st.booleans(), st.sampled_from([None, RENAMED]))
def test_a_table_reads_back_as_it_was_written(npus, processes, gap, borders, titles):
    text = render(npus, processes, gap=gap, borders=borders, titles=titles)
    reading = npu_smi_info.parse(text)
    assert (reading.version, reading.npus, reading.processes) == ("25.9.9", tuple(npus), tuple(processes))


@given(
    tables, st.sampled_from(["Fan(%)", "Fan Speed(%)", "SN"]), st.sampled_from(["-", "44", "1 / 2"]), st.integers(0, 3)
)
def test_an_added_column_is_left_out_and_moves_no_other(npus, title, value, place):
    reading = npu_smi_info.parse(render(npus, extra=(title, value, place)))
    assert reading.npus == tuple(npus)


def test_an_added_cell_is_left_out_and_moves_no_other():
    text = (FIXTURES / "info_a2_910b4_25.2.3.txt").read_text()
    wider = "\n".join(
        line[:28] + ("| Slot  " if "Name" in line and "Health" in line else "| 7     ") + line[28:]
        if line.startswith("|") and "npu-smi" not in line
        else line
        for line in text[: text.index("| NPU     Chip")].splitlines()
    )
    assert npu_smi_info.parse(wider).npus == npu_smi_info.parse(text).npus


def test_a_column_in_another_unit_is_not_taken_for_the_old_one():
    npu = Npu(0, 0, 1, "910B4", "OK", 80.5, 40, 0, 0, "0000:01:00.0", 5, 0, 0, 12, 64)
    (read,) = npu_smi_info.parse(render([npu], titles={"HBM-Usage(MB)": "HBM-Usage(GB)"})).npus
    assert (read.hbm_used_mb, read.hbm_total_mb) == (None, None)
    assert read.bus_id == "0000:01:00.0"


def test_a_process_name_may_hold_a_bar():
    npu = Npu(0, 0, 1, "910B4", "OK", 80.5, 40, 0, 0, "0000:01:00.0", 5, 0, 0, 12, 64)
    reading = npu_smi_info.parse(render([npu], [Process(0, 0, 77, "sh -c a|b | c", 12)]))
    assert reading.processes == (Process(0, 0, 77, "sh -c a|b | c", 12),)


def test_names_keep_their_markup_and_lose_their_control_characters():
    npu = Npu(0, 0, 1, "910B4", "OK", 80.5, 40, 0, 0, "0000:01:00.0", 5, 0, 0, 12, 64)
    text = render([npu], [Process(0, 0, 77, "<b>\x07\x1b[31mred\x1b[0m</b>\x00", 12)])
    (process,) = npu_smi_info.parse(text).processes
    assert process.name == "<b>red</b>"


def test_numbers_no_device_can_print_are_unknown():
    text = render([Npu(0, 0, 1, "910B4", "OK", 80.5, 40, 0, 0, "0000:01:00.0", 5, 0, 0, 12, 64)])
    (npu,) = npu_smi_info.parse(text.replace("80.5", "nan ").replace("40 ", "9" * 5000 + " ")).npus
    assert (npu.power_w, npu.temp_c, npu.health) == (None, None, "OK")


def test_of_two_tables_in_one_text_the_later_counts():
    npus = [Npu(0, 0, 1, "910B4", "OK", power, 40, 0, 0, "0000:01:00.0", 5, 0, 0, 12, 64) for power in (80.5, 99.5)]
    assert npu_smi_info.parse(render(npus[:1]) + render(npus[1:])).npus == (npus[1],)


def test_a_table_without_its_end_says_so():
    text = (FIXTURES / "info_a2_910b4_25.2.3.txt").read_text()
    assert not npu_smi_info.parse(text).cut
    assert npu_smi_info.parse(text[: text.index("| 5     910B4")]).cut is False  # ends at a border: nothing to see
    assert npu_smi_info.parse(text[: text.index("| 5     910B4") + 120]).cut
    assert npu_smi_info.parse(text[: text.rindex("\n+") + 1]).cut


@pytest.mark.parametrize(
    "name", ["info_a2_910b4_25.2.3", "info_a3_910_93_25.3.1", "info_310p_duo_24.1.1", "info_950pr_25.7.2"]
)
def test_a_table_cut_anywhere_says_nothing_that_is_not_so(name):
    text = (FIXTURES / f"{name}.txt").read_text()
    whole = npu_smi_info.parse(text)
    for end in range(len(text)):
        try:
            cut = npu_smi_info.parse(text[:end])
        except ParseError:
            continue
        assert cut.version in {None, whole.version}
        for read, true in zip(cut.npus, whole.npus, strict=False):
            assert all(value in (None, truth) for value, truth in zip(read, true, strict=True)), (end, read)
        for read, true in zip(cut.processes, whole.processes, strict=False):
            assert read[:4] == true[:4] and read.memory_mb in (None, true.memory_mb), (end, read)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FIXTURES.glob("info_*.txt"))), st.data())
def test_a_damaged_table_raises_nothing_else(path, data):
    text = path.read_bytes().decode()
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.text(max_size=4) | st.sampled_from(["|", "\n", "/", "+", " | "]))
            + text[at + data.draw(st.integers(0, 90)) :]
        )
    try:
        reading = npu_smi_info.parse(text)
    except ParseError as refusal:
        assert refusal.meaning in failures.MEANINGS
        return
    assert json.loads(json.dumps(reading.as_json(), allow_nan=False)) == reading.as_json()
    at_once = _info_whole.read(text)
    assert at_once is None or at_once == _info_by_row.read(text)
    assert isinstance(reading, Info | failures.Unreadable)
