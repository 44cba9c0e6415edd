"""What a run notes of its code."""

from __future__ import annotations

from pathlib import Path

from batchhvd.node.provenance import record


def test_a_folder_with_too_many_files_is_told_and_not_taken_for_the_whole_code(tmp_path: Path) -> None:
    # Seen to be silent: a replay said that the code of then ran, without the modules that nobody had looked at.
    (tmp_path / "train.py").write_text("import last")
    assert record._code(tmp_path / "train.py", tmp_path / "logs")[1] == ""
    (tmp_path / "data").mkdir()
    for number in range(record._MOST_SEEN + 1):
        (tmp_path / "data" / f"{number}.txt").touch()
    (tmp_path / "last.py").write_text("")
    files, missing = record._code(tmp_path / "train.py", tmp_path / "logs")
    assert "train.py" in files and "more than 1000 files" in missing
