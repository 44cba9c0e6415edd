import os


def test_shares_directories_and_files_go_up_and_come_down(share, folder):
    directory = share.get_directory_client("cifar")
    directory.create_directory()
    data = os.urandom(9 * 1024 * 1024 + 7)
    file = directory.get_file_client("script mit Leerzeichen ü.py")
    file.upload_file(data, max_concurrency=4)
    assert (folder / "cifar" / "script mit Leerzeichen ü.py").read_bytes() == data
    assert file.download_file().readall() == data
    assert [e["name"] for e in share.list_directories_and_files("cifar")] == ["script mit Leerzeichen ü.py"]
    assert file.get_file_properties().size == len(data)
    file.delete_file()
    assert not file.exists()
