from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest import ingest_paths
from kb import KnowledgeBase
from kb.errors import NotFound
from kb.tables import SkillEvidence


def make_skill(root: Path, name: str, text: str, scope: str = "cpu", template: str = "code") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {text}\nlicense: Apache-2.0\n"
        f"metadata: {{scope: {scope}, language: cpp}}\n---\n\n# {name}\n\nWhen to use: {text}.\n"
    )
    (folder / "skill.toml").write_text('[applicability]\nops = ["aten.sum"]\n')
    (folder / "kernel.cpp.j2").write_text(template)
    (folder / "evidence.json").write_text(json.dumps([{"problem": "p", "speedup": 2.0}]))
    return folder


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    make_skill(root, "row-softmax", "softmax over rows with an online maximum")
    make_skill(root, "tile-transpose", "transpose of a matrix in tiles")
    make_skill(root, "warp-softmax", "softmax over rows by warps", scope="nvidia")
    return root


def test_skill_is_found_by_meaning_and_hard_filtered(kb: KnowledgeBase, skills: Path) -> None:
    report = ingest_paths(kb, [skills])
    assert (report.added, report.failed) == (3, [])
    found = kb.find_skills("softmax rows", target="cpu")
    assert [s.name for s in found] == ["row-softmax", "tile-transpose"]
    best = found[0]
    assert best.spec == {"applicability": {"ops": ["aten.sum"]}}
    assert best.root == skills / "row-softmax"
    assert best.language == "cpp"
    assert best.body.startswith("---\nname: row-softmax")
    assert best.evidence == [{"problem": "p", "speedup": 2.0, "origin": "library", "skill_version": 1}]
    assert best.score > 0
    assert best.citation.startswith("row-softmax/SKILL.md:")
    assert best.chunk_id
    assert [s.name for s in kb.skills("nvidia:sm_90")] == ["warp-softmax"]
    assert len(kb.find_skills("softmax rows", target="cpu", k=1)) == 1


@pytest.mark.parametrize("file", ["kernel.cpp.j2", "skill.toml", "SKILL.md", "../_shared/loops.j2"])
def test_changed_content_grows_the_version(kb: KnowledgeBase, skills: Path, file: str) -> None:
    (skills / "_shared").mkdir()
    (skills / "_shared" / "loops.j2").write_text("loop")
    ingest_paths(kb, [skills])
    before = kb.skill("row-softmax")
    path = skills / "row-softmax" / file
    path.write_text(path.read_text() + "\n# changed\n")
    report = ingest_paths(kb, [skills])
    after = kb.skill("row-softmax")
    assert (before.version, after.version) == ("1", "2")
    assert report.updated == (3 if "_shared" in file else 1)


def test_new_evidence_keeps_the_version(kb: KnowledgeBase, skills: Path) -> None:
    ingest_paths(kb, [skills])
    (skills / "row-softmax" / "evidence.json").write_text(json.dumps([{"speedup": 3.0}, {"speedup": 0.5}]))
    assert ingest_paths(kb, [skills]).updated == 1
    skill = kb.skill("row-softmax")
    assert skill.version == "1"
    assert [e["speedup"] for e in skill.evidence] == [3.0, 0.5]


def test_evidence_of_runs_survives(kb: KnowledgeBase, skills: Path) -> None:
    ingest_paths(kb, [skills])
    with kb.session() as session:
        session.add(
            SkillEvidence(skill_id="row-softmax", skill_version=1, origin="run-1", record={"speedup": 9})
        )
        session.commit()
    (skills / "row-softmax" / "kernel.cpp.j2").write_text("other")
    ingest_paths(kb, [skills])
    assert {(e["origin"], e["speedup"], e["skill_version"]) for e in kb.skill("row-softmax").evidence} == {
        ("library", 2.0, 2),
        ("run-1", 9, 1),
    }


def test_removed_skill_disappears(kb: KnowledgeBase, skills: Path) -> None:
    ingest_paths(kb, [skills])
    for path in (skills / "row-softmax").iterdir():
        path.unlink()
    (skills / "row-softmax").rmdir()
    assert ingest_paths(kb, [skills]).removed == 1
    assert [s.name for s in kb.find_skills("softmax rows", target="cpu")] == ["tile-transpose"]
    with pytest.raises(NotFound, match="row-softmax"):
        kb.skill("row-softmax")


def test_moved_skill_keeps_its_name(kb: KnowledgeBase, skills: Path) -> None:
    ingest_paths(kb, [skills])
    (skills / "row-softmax").rename(skills / "zz-moved")
    assert ingest_paths(kb, [skills]).failed == []
    assert kb.skill("row-softmax").root == skills / "zz-moved"


def test_second_skill_of_the_same_name_is_reported(kb: KnowledgeBase, skills: Path, tmp_path: Path) -> None:
    ingest_paths(kb, [skills])
    make_skill(tmp_path / "mine", "row-softmax", "my own")
    failed = ingest_paths(kb, [tmp_path / "mine"]).failed
    assert ["exists already" in f["error"] for f in failed] == [True]
    assert "online maximum" in kb.skill("row-softmax").description


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("SKILL.md", "---\ndescription: x\n---\n# a\n", "`name`"),
        ("SKILL.md", "---\nname: ok\n---\n# a\n", "`description` is missing"),
        ("SKILL.md", "---\nname: Not OK\ndescription: x\n---\n", "`name`"),
        ("skill.toml", "a = [", "skill.toml"),
        ("evidence.json", "{", "evidence.json"),
        ("evidence.json", "[1]", "evidence.json"),
    ],
)
def test_invalid_skill_is_one_line(
    kb: KnowledgeBase, skills: Path, file: str, content: str, message: str
) -> None:
    (skills / "row-softmax" / file).write_text(content)
    failed = ingest_paths(kb, [skills]).failed
    assert len(failed) == 1
    assert message in failed[0]["error"]
    assert "\n" not in failed[0]["error"]


def test_dates_in_skill_toml_are_text(kb: KnowledgeBase, skills: Path) -> None:
    (skills / "row-softmax" / "skill.toml").write_text("checked = 2026-01-02\n[[runs]]\nat = 03:04:05\n")
    report = ingest_paths(kb, [skills])
    assert (report.added, report.failed) == (3, [])
    assert kb.skill("row-softmax").spec == {"checked": "2026-01-02", "runs": [{"at": "03:04:05"}]}


def test_skill_that_cannot_be_stored_stops_only_itself(kb: KnowledgeBase, skills: Path) -> None:
    (skills / "row-softmax" / "skill.toml").write_text("x = nan\n")
    path = skills / "tile-transpose" / "SKILL.md"
    path.write_text(path.read_text().replace("license: Apache-2.0", "license: !!binary aGVsbG8="))
    report = ingest_paths(kb, [skills])
    assert report.added == 1
    errors = sorted(f["error"] for f in report.failed)
    assert errors == [
        "front matter: a value cannot be stored: binary (bytes)",
        "skill.toml: a value cannot be stored: nan",
    ]


def test_skills_of_a_local_only_source_say_so(kb: KnowledgeBase, skills: Path) -> None:
    ingest_paths(kb, [skills / "row-softmax"], visibility="local-only")
    ingest_paths(kb, [skills])
    found = {s.name: s.local_only for s in kb.find_skills("softmax rows", target="cpu")}
    assert found == {"row-softmax": True, "tile-transpose": False}
    assert kb.skill("row-softmax").local_only
