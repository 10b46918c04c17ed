import csv
import io

from console import spreadsheet
from tests.answers import whole


def sent(head, rows):
    text = whole(spreadsheet.answer("made.csv", head, rows)).decode()
    return text[:1], list(csv.reader(io.StringIO(text[1:], newline="")))


def test_a_table_is_utf_8_with_its_mark_once_and_unknown_as_an_empty_cell():
    rows = [[n, None, "机群, “x”"] for n in range(spreadsheet.BATCH + 1)]
    mark, lines = sent(["n", "power_w", "name"], rows)
    assert mark == "\ufeff" and lines[0] == ["n", "power_w", "name"]
    assert lines[1:] == [[str(n), "", "机群, “x”"] for n in range(spreadsheet.BATCH + 1)]


def test_a_name_cannot_become_a_formula_in_a_spreadsheet():
    cells = ["=cmd()", "@x", "-1", "+1", "\tx", "\rx", "kp-01", -1]
    _mark, [_head, line] = sent(["a"] * len(cells), [cells])
    assert line == ["'=cmd()", "'@x", "'-1", "'+1", "'\tx", "'\rx", "kp-01", "-1"]
