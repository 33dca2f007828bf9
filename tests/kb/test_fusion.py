from __future__ import annotations

from kb.fusion import Candidate, fuse


def ranked(candidates: dict[str, Candidate], chunks: int = 1000) -> list[str]:
    fuse(candidates.values(), chunks)
    return sorted(candidates, key=lambda name: -candidates[name].score)


def middling() -> dict[str, Candidate]:
    return {f"m{i}": Candidate(bm25=9.0, coverage=0.3, similarity=0.40 - i / 1000) for i in range(40)}


def test_what_one_side_alone_is_sure_of_is_not_outvoted() -> None:
    """A rare identifier, or a paraphrase without one common word."""
    known = {
        "identifier": Candidate(bm25=30.0, coverage=0.9),
        "paraphrase": Candidate(similarity=0.85, searched_by="exact"),
    }
    assert set(ranked(middling() | known)[:2]) == set(known)


def test_being_the_first_of_a_side_that_found_nothing_near_says_little() -> None:
    """What ranks forget: both lists have a first, however poor it is."""
    poor = {"least": Candidate(similarity=0.402), "both": Candidate(bm25=14.0, coverage=0.5, similarity=0.39)}
    assert ranked(middling() | poor)[0] == "both"
    assert ranked(middling() | poor).index("least") > 30


def test_a_chunk_that_a_search_did_not_find_counts_as_its_last() -> None:
    candidates = {"last": Candidate(bm25=5.0, similarity=0.3), "unknown": Candidate(bm25=5.0)}
    fuse(candidates.values(), 1000)
    assert candidates["last"].score == candidates["unknown"].score


def test_all_of_a_question_beats_one_word_of_it_repeated() -> None:
    once = {"repeated": Candidate(bm25=12.0, coverage=0.2), "covered": Candidate(bm25=11.0, coverage=0.9)}
    assert ranked(once) == ["covered", "repeated"]


def test_the_size_of_the_store_does_not_decide_between_the_searches() -> None:
    """BM25's weights grow with the logarithm of the number of chunks, cosines do not."""
    for chunks, weight in ((100, 4.6), (1_000_000, 13.8)):
        both = {"word": Candidate(bm25=weight, coverage=0.5), "near": Candidate(similarity=0.6)}
        both["last"] = Candidate(similarity=0.3)
        assert ranked(both, chunks)[0] == "near"


def test_nothing_found_is_nothing_scored() -> None:
    fuse([], 0)
