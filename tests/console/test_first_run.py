"""What a start sees to before anything runs."""

from pathlib import Path

import pytest

from console import first_run
from console.environment import BadSetting


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o777, 0o700), (0o750, 0o750), (0o700, 0o700)])
def test_nobody_else_on_this_machine_looks_into_the_folder(tmp_path, before, after):
    var = tmp_path / "var"
    var.mkdir()
    var.chmod(before)
    first_run.check_folder(var)
    assert var.stat().st_mode & 0o777 == after


def test_a_new_folder_is_ours_alone(tmp_path):
    first_run.check_folder(tmp_path / "new" / "var")
    assert (tmp_path / "new" / "var").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_stays_open_to_all_is_refused_in_words(tmp_path, monkeypatch):
    def refused(_path, _mode):
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(BadSetting, match="chmod o-rwx"):
        first_run.check_folder(tmp_path)
