"""Archives, honest and hostile."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from ingest import archives, ingest_paths
from ingest.archives import Budget, Unpacked, unpack
from ingest.errors import Unavailable, Unreadable
from kb import KnowledgeBase, Settings
from kb.tables import Document, Source

PAGE = "# Page\n\nTiles fit the cache.\n"


def make_zip(path: Path, members: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def make_tar(path: Path, members: dict[str, bytes | str], mode: str = "w") -> Path:
    if mode == "w:zst":
        plain = make_tar(path.with_suffix(".plain"), members)
        path.write_bytes(zstd.compress(plain.read_bytes()))
        plain.unlink()
        return path
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            content = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def run(path: Path, limit: int = 100_000_000, max_member: int = 1_000_000) -> tuple[Unpacked, set[str]]:
    folder = path.parent / "unpacked"
    found = unpack(path, folder, Budget(limit), max_member=max_member)
    return found, {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize(
    ("name", "mode"),
    [("a.zip", ""), ("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar.bz2", "w:bz2"),
     ("a.tar.xz", "w:xz"), ("a.TXZ", "w:xz"), ("a.tar.zst", "w:zst"), ("a.tzst", "w:zst")],
)  # fmt: skip
def test_members_are_unpacked(tmp_path: Path, name: str, mode: str) -> None:
    members: dict[str, bytes | str] = {"docs/a.md": PAGE, "b.md": PAGE, "./c/./d.md": PAGE}
    path = make_tar(tmp_path / name, members, mode) if mode else make_zip(tmp_path / name, members)
    found, files = run(path)
    assert files == {"docs/a.md", "b.md", "c/d.md"}
    assert (found.members, found.problems, found.error) == (3, [], "")


ESCAPES = [
    "../out.md",
    "a/../../out.md",
    "/abs.md",
    "C:/abs.md",
    "..\\out.md",
    "a/" * 50 + "deep.md",
    "x" * 300,
]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ESCAPES)
def test_a_name_that_leads_out_is_left_out_and_the_rest_read(tmp_path: Path, kind: str, name: str) -> None:
    inside = tmp_path / "deep" / "er"
    inside.mkdir(parents=True)
    make = make_zip if kind == "zip" else make_tar
    found, files = run(make(inside / f"a.{kind}", {name: PAGE, "good.md": PAGE}))
    assert files == {"good.md"}
    assert len(found.problems) == 1
    assert {p.name for p in tmp_path.rglob("*.md")} == {"good.md"}
    assert not Path("/abs.md").exists()


def test_links_and_devices_are_not_made(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("s", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE), ("f", tarfile.FIFOTYPE),
                           ("d", tarfile.CHRTYPE)):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("s/passwd.md")  # through the link, if there were one
        info.size = len(PAGE)
        archive.addfile(info, io.BytesIO(PAGE.encode()))
    found, files = run(tmp_path / "a.tar")
    assert files == {"s/passwd.md"}
    assert found.links == ["s", "h"]
    assert [n for n, _ in found.problems] == ["f", "d"]
    assert not any(p.is_symlink() for p in tmp_path.rglob("*"))


def test_links_in_zip_files_are_not_made(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link.md")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
        archive.writestr("good.md", PAGE)
    found, files = run(tmp_path / "a.zip")
    assert (files, found.problems, found.links) == ({"good.md"}, [], ["link.md"])


def test_links_are_named_and_no_failure(kb: KnowledgeBase, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for i in range(8):
            info = tarfile.TarInfo(f"link{i}.md")
            info.type, info.linkname = tarfile.SYMTYPE, "../out.md"
            archive.addfile(info)
        info = tarfile.TarInfo("good.md")
        info.size = len(PAGE)
        archive.addfile(info, io.BytesIO(PAGE.encode()))
    report = ingest_paths(kb, [tmp_path / "a.tar"])
    assert (report.added, report.failed) == (1, [])
    (note,) = [n for entry in report.notes for n in entry["notes"]]
    assert note.startswith("links are not followed: link0.md, ")
    assert note.endswith(" and 3 more")


# --- bombs ---


def test_a_bomb_is_given_up_and_leaves_nothing(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip", {f"{i}.md": b"\0" * 5_000_000 for i in range(20)})
    with pytest.raises(Unreadable, match="200 times its size"):
        run(tmp_path / "a.zip", max_member=10_000_000)
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize(("opener", "suffix"), [(gzip.open, "gz"), (lzma.open, "xz"), (zstd.open, "zst")])
def test_a_compressed_tar_bomb_is_given_up(tmp_path: Path, opener: Any, suffix: str) -> None:
    path = tmp_path / f"a.tar.{suffix}"
    with opener(path, "wb") as file:
        for _ in range(60):
            file.write(b"\0" * 1_000_000)
    with pytest.raises(Unreadable, match="200 times its size"):
        run(path)


def test_the_budget_holds_for_all_archives_of_a_run(tmp_path: Path) -> None:
    budget = Budget(1_500_000)
    for i in range(2):
        make_zip(tmp_path / f"{i}.zip", {"a.md": os.urandom(1_000_000)})
    unpack(tmp_path / "0.zip", tmp_path / "one", budget, max_member=2_000_000)
    with pytest.raises(Unreadable, match="all archives of a run may have 2 MB") as caught:
        unpack(tmp_path / "1.zip", tmp_path / "two", budget, max_member=2_000_000)
    assert "KERNELEVOLVE_MAX_ARCHIVE_MB" in caught.value.hint
    assert budget.left == 500_000, "what was given up is given back"


def test_a_member_that_lies_about_its_size_is_cut_off(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.md": b"x" * 3_000_000, "b.md": PAGE})
    raw = bytearray(path.read_bytes())
    real, lie = struct.pack("<L", 3_000_000), struct.pack("<L", 10)
    path.write_bytes(bytes(raw).replace(real, lie))
    found, files = run(path, max_member=1_000_000)
    assert "b.md" in files
    assert sum(f.stat().st_size for f in (tmp_path / "unpacked").rglob("*")) < 1_100_000
    assert [n for n, _ in found.problems] == ["a.md"] or "a.md" in files


def test_a_directory_of_millions_of_members_is_refused_unread(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.md": PAGE})
    raw = bytearray(path.read_bytes())
    end = raw.rfind(b"PK\5\6")
    raw[end + 12 : end + 16] = struct.pack("<L", 2_000_000_000)
    path.write_bytes(bytes(raw))
    with pytest.raises(Unreadable, match="members"):
        run(path)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    for kind, make in (("zip", make_zip), ("tar", make_tar)):
        with pytest.raises(Unreadable, match=r"members|3 members"):
            run(make(tmp_path / f"a.{kind}", {f"{i}.md": PAGE for i in range(5)}))


def test_a_window_of_gigabytes_is_not_allocated(tmp_path: Path) -> None:
    options = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.content_size_flag: 0}
    with zstd.open(tmp_path / "a.tar.zst", "wb", options=options) as file:
        file.write(b"x" * 100)
    with pytest.raises(Unreadable, match="no archive"):
        run(tmp_path / "a.tar.zst")


def test_several_streams_in_one_file(tmp_path: Path) -> None:
    plain = make_tar(tmp_path / "plain", {"a.md": PAGE}).read_bytes()
    halves = plain[:300], plain[300:]
    (tmp_path / "a.tar.zst").write_bytes(b"".join(zstd.compress(half) for half in halves))
    (tmp_path / "a.tar.xz").write_bytes((b"\0" * 8).join(lzma.compress(half) for half in halves) + b"\0" * 4)
    for name in ("a.tar.zst", "a.tar.xz"):
        found, files = run(tmp_path / name)
        assert (files, found.error) == ({"a.md"}, "")
        shutil.rmtree(tmp_path / "unpacked")


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", zstd.compress)]
)
def test_what_stands_behind_the_end_does_not_cost_what_came_before(
    tmp_path: Path, suffix: str, compress: Any
) -> None:
    plain = make_tar(tmp_path / "plain", {"a.md": PAGE}).read_bytes()
    (tmp_path / f"a.tar.{suffix}").write_bytes(compress(plain) + b"garbage")
    found, files = run(tmp_path / f"a.tar.{suffix}")
    assert files == {"a.md"}
    assert found.error


def test_members_of_one_name_are_named(kb: KnowledgeBase, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for text in ("# First\n\nFirst words.\n", "# Last\n\nLast words.\n"):
            info = tarfile.TarInfo("a.md")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    report = ingest_paths(kb, [tmp_path / "a.tar"])
    assert (report.added, report.failed) == (1, [])
    assert "there more than once, the last of them is read: a.md" in report.notes[0]["notes"][0]
    assert "Last words" in kb.query("words").hits[0].text


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("线程块优化说明", "gbk"), ("行列の説明", "shift_jis"), ("größe", "utf-8"), ("größe", "cp437")],
)
def test_names_in_the_encoding_of_their_maker(tmp_path: Path, name: str, encoding: str) -> None:
    raw = f"{name}.md".encode(encoding)
    path = make_zip(tmp_path / "a.zip", {"x" * len(raw): PAGE})
    path.write_bytes(path.read_bytes().replace(b"x" * len(raw), raw))
    assert run(path)[1] == {f"{name}.md"}


def test_headers_that_make_no_sense_are_said_to(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.md")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a.md"}
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info.size = 600
        archive.addfile(info, io.BytesIO(b"x" * 600))
    with pytest.raises(Unreadable, match="damaged or no archive: its headers make no sense"):
        run(tmp_path / "a.tar")


def test_a_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 8_000_000_000
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096)
    with pytest.raises(Unreadable, match="header of"):
        run(tmp_path / "a.tar")


def test_nested_archives_end_somewhere(tmp_path: Path) -> None:
    inner = make_zip(tmp_path / "3.zip", {"c.md": PAGE}).read_bytes()
    middle = make_tar(tmp_path / "2.tar.gz", {"b.md": PAGE, "3.zip": inner}, "w:gz").read_bytes()
    found, files = run(make_zip(tmp_path / "1.zip", {"a.md": PAGE, "in/2.tar.gz": middle}))
    assert files == {"a.md", "in/2.tar.gz!/b.md"}
    assert [n for n, _ in found.problems] == ["in/2.tar.gz!3.zip"]
    assert archives.cited("in/2.tar.gz!/b.md") == "in/2.tar.gz!b.md"


# --- damage ---


def test_what_is_no_archive(tmp_path: Path) -> None:
    for name in ("a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2", "a.tar.zst"):
        (tmp_path / name).write_bytes(b"not an archive at all " * 40)
        with pytest.raises(Unreadable, match="no archive"):
            run(tmp_path / name)
    with pytest.raises(Unavailable):
        run(tmp_path / "gone.zip")


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.zst"])
def test_a_truncated_archive_says_so_and_gives_what_came_before(tmp_path: Path, name: str) -> None:
    mode = {"a.tar": "w", "a.tar.gz": "w:gz", "a.tar.xz": "w:xz", "a.tar.zst": "w:zst"}[name]
    path = make_tar(tmp_path / name, {"a.md": PAGE, "b.md": os.urandom(400_000)}, mode)
    path.write_bytes(path.read_bytes()[:200_000])
    found, files = run(path)
    assert "a.md" in files
    assert found.error


def test_one_damaged_member_does_not_cost_the_others(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.md": os.urandom(20_000), "b.md": PAGE})
    raw = bytearray(path.read_bytes())
    raw[5000:5010] = b"damaged!!!"
    path.write_bytes(bytes(raw))
    found, files = run(path)
    assert files == {"b.md"}
    assert found.problems[0][0] == "a.md"


def test_encrypted_and_oddly_compressed_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.md", PAGE)
        archive.writestr("b.md", PAGE, compress_type=zipfile.ZIP_LZMA)
        archive.writestr("c.md", PAGE)
        archive.filelist[0].flag_bits |= 1
    found, files = run(tmp_path / "a.zip")
    assert files == {"c.md"}
    assert found.problems == [("a.md", "encrypted"), ("b.md", "compression method 14 is not read")]


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    found, files = run(make_tar(tmp_path / "a.tar", {"a": PAGE, "a/b.md": PAGE, "c.md": PAGE}))
    assert {"a", "c.md"} <= files
    assert [n for n, _ in found.problems] == ["a/b.md"]


def test_random_bytes_never_break_out_of_the_error_types(tmp_path: Path) -> None:
    import random

    draw = random.Random(5)
    seeds = [
        make_zip(tmp_path / "s.zip", {"a.md": PAGE, "b/c.md": PAGE * 20}).read_bytes(),
        make_tar(tmp_path / "s.tar", {"a.md": PAGE, "b/c.md": PAGE * 20}).read_bytes(),
        make_tar(tmp_path / "s.tar.gz", {"a.md": PAGE}, "w:gz").read_bytes(),
        make_tar(tmp_path / "s.tar.xz", {"a.md": PAGE}, "w:xz").read_bytes(),
        make_tar(tmp_path / "s.tar.zst", {"a.md": PAGE}, "w:zst").read_bytes(),
    ]
    names = ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.zst"]
    for i in range(150):
        name, data = names[i % 5], bytearray(seeds[i % 5])
        for _ in range(draw.randrange(1, 12)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path = tmp_path / name
        path.write_bytes(bytes(data[: draw.randrange(len(data) // 2, len(data) + 1)]))
        folder = tmp_path / f"out{i}"
        try:
            unpack(path, folder, Budget(10_000_000), max_member=1_000_000)
        except (Unreadable, Unavailable):
            assert not folder.exists()


# --- through ingestion ---


def paths_of(kb: KnowledgeBase) -> set[str]:
    from sqlmodel import select

    with kb.session() as session:
        return {d.path for d in session.exec(select(Document))}


def test_members_are_documents_with_the_archive_in_their_citation(
    kb: KnowledgeBase, tmp_path: Path, settings: Settings
) -> None:
    root = tmp_path / "docs"
    root.mkdir()
    make_zip(root / "m.zip", {"a/b.md": PAGE, ".hidden.md": PAGE, "kernel.bin": b"\0\1\2" * 100})
    report = ingest_paths(kb, [root])
    assert report.added == 1
    assert kb.query("tiles").hits[0].citation == "m.zip!a/b.md:1-3 § Page"
    assert [f["path"] for f in report.failed] == [f"{root}/m.zip!kernel.bin"]
    assert ingest_paths(kb, [root]).unchanged == 1
    assert not (settings.home / "scratch").exists()
    make_zip(root / "m.zip", {"c.md": PAGE})
    report = ingest_paths(kb, [root])
    assert (report.added, report.removed) == (1, 2)
    assert paths_of(kb) == {"m.zip!c.md"}
    (root / "m.zip").unlink()
    assert ingest_paths(kb, [root]).removed == 1
    assert paths_of(kb) == set()


def test_an_archive_by_itself_is_a_source(kb: KnowledgeBase, tmp_path: Path) -> None:
    make_tar(tmp_path / "m.tar.gz", {"a.md": PAGE, "b.md": "# Other\n\nWaves.\n"}, "w:gz")
    assert ingest_paths(kb, [tmp_path / "m.tar.gz"], scope="cpu").added == 2
    assert paths_of(kb) == {"m.tar.gz!a.md", "m.tar.gz!b.md"}
    make_tar(tmp_path / "m.tar.gz", {"a.md": PAGE}, "w:gz")
    report = ingest_paths(kb, [tmp_path / "m.tar.gz"])
    assert (report.unchanged, report.removed) == (1, 1)


def test_a_broken_archive_is_one_failure_and_forgets_what_it_held(kb: KnowledgeBase, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "m.zip", {"a.md": PAGE})
    ingest_paths(kb, [path])
    path.write_bytes(b"x" * 100)
    report = ingest_paths(kb, [path])
    assert [f["path"] for f in report.failed] == [str(path)]
    assert kb.query("tiles").hits == []
    make_zip(path, {"a.md": PAGE})
    report = ingest_paths(kb, [path])
    assert (report.added, report.failed) == (1, [])
    assert paths_of(kb) == {"m.zip!a.md"}


def test_an_archive_that_cannot_be_read_now_loses_nothing(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_zip(tmp_path / "m.zip", {"a.md": PAGE})
    ingest_paths(kb, [path])

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(zipfile, "ZipFile", fail)
        report = ingest_paths(kb, [path])
    assert [f["error"] for f in report.failed] == ["Input/output error"]
    assert kb.query("tiles").hits


def test_scope_files_inside_and_outside_an_archive(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = tmp_path / "docs"
    root.mkdir()
    (root / "kernelevolve-source.toml").write_text('[scopes]\n"m.zip" = "cpu"\n"n.zip" = "cpu"\n')
    make_zip(root / "m.zip", {"a.md": PAGE})
    make_zip(root / "n.zip", {"a.md": PAGE, "kernelevolve-source.toml": 'scope = "opencl"\n'})
    make_zip(root / "p.zip", {"a.md": PAGE, "kernelevolve-source.toml": 'visibility = "local-only"\n'})
    ingest_paths(kb, [root])
    from sqlmodel import select

    with kb.session() as session:
        found = {
            d.path: (d.scope, session.get_one(Source, d.source_id).visibility)
            for d in session.exec(select(Document))
        }
    assert found == {
        "m.zip!a.md": ("cpu", "shared"),
        "n.zip!a.md": ("opencl", "shared"),
        "p.zip!a.md": ("generic", "local-only"),
    }
    assert ingest_paths(kb, [root]).unchanged == 3


def test_a_skill_in_an_archive_is_refused(kb: KnowledgeBase, tmp_path: Path) -> None:
    make_zip(tmp_path / "m.zip", {"s/SKILL.md": "---\nname: s\ndescription: d\n---\n# S\n\ntext\n"})
    assert "unpack" in ingest_paths(kb, [tmp_path / "m.zip"]).failed[0]["error"]
