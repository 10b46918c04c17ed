import gzip

from console import assets


def test_static_files_are_copied_and_packed_once_for_each_state_of_the_sources(tmp_path, monkeypatch):
    root = tmp_path / "static"
    assert assets.collect(root) is True
    style = (root / "css" / "base.css").read_bytes()
    assert gzip.decompress((root / "css" / "base.css.gz").read_bytes()) == style
    assert (root / "django_htmx").is_dir(), "files of installed packages come along"
    assert assets.collect(root) is False
    monkeypatch.setattr(assets, "stamp_of_sources", lambda: "pulled")
    (root / "css" / "gone.css").write_text("x")
    assert assets.collect(root) is True and not (root / "css" / "gone.css").exists()


def test_a_copy_that_was_cut_short_is_made_again(tmp_path):
    root = tmp_path / "static"
    (root / "css").mkdir(parents=True)
    (root / "css" / "base.css").write_text("cut")
    assert assets.collect(root) is True
    assert (root / "css" / "base.css").read_text() != "cut"
