"""A site's own file is read once, and anew when it has changed, comes or goes."""

import os

from deployments.services.site_file import SiteFile


def test_it_is_read_anew_only_when_it_has_changed(tmp_path):
    path, reads = tmp_path / "rows.json", []

    def read(path):
        reads.append(path)
        return path.read_text() if path.exists() else "nothing"

    file = SiteFile(read)
    assert [file.content(path), file.content(path)] == ["nothing"] * 2 and len(reads) == 1
    path.write_text("one")
    assert [file.content(path), file.content(path)] == ["one"] * 2 and len(reads) == 2
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert file.content(path) == "two" and file.content(tmp_path / "other.json") == "nothing"
    path.unlink()
    assert file.content(path) == "nothing"
