"""Shares as a file system of fsspec, with the programs that read by it."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from typing import Any

import fsspec
import pytest

from batchhvd.errors import SpecError
from batchhvd.testing import AzureFiles


@pytest.fixture
def fs(azure_files: AzureFiles) -> Any:
    return fsspec.filesystem("batchhvd", connection_string=azure_files.connection_string)


def test_files_and_directories(fs: Any, azure_files: AzureFiles) -> None:
    fs.makedirs("batchhvd://test/a/b", exist_ok=True)
    fs.pipe("test/a/b/ü 1.txt", b"0123456789")
    fs.pipe("test/a/empty", b"")
    assert fs.find("test") == ["test/a/b/ü 1.txt", "test/a/empty"]
    assert fs.glob("test/**/*.txt") == ["test/a/b/ü 1.txt"]
    assert fs.cat("batchhvd://test/a/b/ü 1.txt") == b"0123456789"
    assert fs.cat_file("test/a/b/ü 1.txt", 2, -3) == b"23456"
    assert (fs.isdir("test/a"), fs.isfile("test/a"), fs.exists("test/no"), fs.size("test/a/empty")) == (1, 0, 0, 0)
    before = fs.ukey("test/a/empty")
    fs.pipe("test/a/empty", b"now")
    assert fs.ukey("test/a/empty") != before
    fs.cp("test/a/empty", "test/copied")
    fs.mv("test/copied", "test/moved")
    assert fs.cat("test/moved") == b"now"
    with pytest.raises(OSError, match="DirectoryNotEmpty") as refused:
        fs.rmdir("test/a")
    assert refused.value.errno == errno.ENOTEMPTY
    fs.rm("test/a", recursive=True)
    assert [each["name"] for each in fs.ls("test")] == ["test/moved"]
    assert fs.ls("", detail=False) == ["test"]
    assert pickle.loads(pickle.dumps(fs)).cat("test/moved") == b"now"


def test_a_file_appears_when_it_is_closed_and_at_its_full_size(fs: Any, azure_files: AzureFiles) -> None:
    data = os.urandom(11 << 20)
    with fs.open("test/large", "wb") as file:
        file.write(data)
        assert not fs.exists("test/large")
    assert (azure_files.folder / "test" / "large").read_bytes() == data
    with fs.open("test/large", "rb") as file:
        file.seek(5 << 20)
        assert file.read(1000) == data[5 << 20 : (5 << 20) + 1000]
    with fs.open("test/large", "ab") as file:
        file.write(b"more")
    assert (azure_files.folder / "test" / "large").read_bytes() == data + b"more"
    assert os.listdir(azure_files.folder / "test") == ["large"]


def test_a_transaction_that_fails_leaves_nothing(fs: Any, azure_files: AzureFiles) -> None:
    with pytest.raises(KeyError), fs.transaction:
        fs.pipe("test/half", b"data")
        raise KeyError
    assert os.listdir(azure_files.folder / "test") == []


def test_errors_are_those_of_files(fs: Any, azure_files: AzureFiles) -> None:
    for wrong, path in ((fs.cat, "test/no"), (fs.ls, "noshare"), (fs.info, "test/no"), (fs.open, "test/no")):
        with pytest.raises(FileNotFoundError):
            wrong(path)
    with pytest.raises(IsADirectoryError):
        fs.pipe("test", b"")
    text = azure_files.connection_string.replace(azure_files.key, "d3Jvbmc=")
    with pytest.raises(PermissionError) as refused:
        fsspec.filesystem("batchhvd", connection_string=text).cat("test/f")
    assert "d3Jvbmc=" not in str(refused.value)
    with pytest.raises(SpecError, match="choose an account of this machine"):
        fsspec.filesystem("batchhvd", connection_string=text, account="a")


def test_pandas_reads_and_writes(azure_files: AzureFiles) -> None:
    pandas = pytest.importorskip("pandas")
    options = {"connection_string": azure_files.connection_string}
    pandas.DataFrame({"a": [1, 2]}).to_csv("batchhvd://test/d.csv", index=False, storage_options=options)
    assert pandas.read_csv("batchhvd://test/d.csv", storage_options=options)["a"].tolist() == [1, 2]


def test_a_program_that_wants_a_path_gets_one(azure_files: AzureFiles) -> None:
    (azure_files.folder / "test" / "f").write_bytes(b"data")
    options = {"connection_string": azure_files.connection_string}
    path = fsspec.open_local("simplecache::batchhvd://test/f", batchhvd=options, simplecache={"same_names": True})
    assert os.path.basename(path) == "f"
    with open(path, "rb") as file:
        assert file.read() == b"data"


def test_without_options_it_is_this_machines_service(batchai: Any) -> None:
    fsspec.config.conf.clear()
    batchai.share._client().get_file_client("f").upload_file(b"data")
    name = batchai.share.account.name
    assert fsspec.filesystem("batchhvd", account=name, skip_instance_cache=True).cat("test/f") == b"data"
    with pytest.raises(SpecError, match="needs one storage account"):
        fsspec.filesystem("batchhvd", account="nosuchname", skip_instance_cache=True).ls("test")


def test_it_is_found_without_being_imported() -> None:
    program = "import fsspec, sys; assert 'batchhvd' in fsspec.available_protocols(); print('batchhvd' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
