"""The model's own tokenizer counts where it is on this machine, and nothing is downloaded."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from prompts import Synthesizer
from prompts.errors import TokenizerMissing
from prompts.tokens import TOKENIZER_NAME, counter_for


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    counter_for.cache_clear()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "tiktoken"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # a download would fail at once


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A tokenizer for which every character is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_folder_with_a_tokenizer_counts(letters):
    counter = counter_for(f"openai:{letters}")
    assert counter.count("abc de\n\nf") == 9
    assert str(letters) in counter.name


@pytest.mark.parametrize("name", ["", "recipe", "openai:gpt-4o", "openai:a/b", "openai:../../x", "stub"])
def test_what_is_not_here_is_estimated_and_said_to_be(name):
    assert counter_for(name).name == TOKENIZER_NAME


def test_a_copy_of_tiktoken_is_used_as_it_is_found(tmp_path, monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256))
    address = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    copy = tmp_path / "tiktoken" / hashlib.sha1(address.encode()).hexdigest()
    copy.parent.mkdir()
    copy.write_bytes(ranks)
    monkeypatch.setattr("tiktoken.load.check_hash", lambda *_: True)  # a small stand-in for its 3.6 MB
    tiktoken.registry.ENCODINGS.pop("o200k_base", None)
    try:
        counter = counter_for("openai:gpt-4o")
        assert counter.name == "tiktoken o200k_base"
        assert counter.count("größe <|endoftext|>") == 21
    finally:
        tiktoken.registry.ENCODINGS.pop("o200k_base", None)


def test_a_damaged_copy_is_named_and_not_fetched(tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    tiktoken.registry.ENCODINGS.pop("o200k_base", None)
    address = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    copy = tmp_path / "tiktoken" / hashlib.sha1(address.encode()).hexdigest()
    copy.parent.mkdir()
    copy.write_bytes(b"half")
    with pytest.raises(TokenizerMissing, match="o200k_base"):
        counter_for("openai:gpt-4o")


def test_a_damaged_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "x"}))
    with pytest.raises(TokenizerMissing, match=r"tokenizer\.json"):
        counter_for(f"openai:{tmp_path}")


def test_the_budget_holds_for_every_tokenizer(letters, draft, child, make_knowledge):
    rng, count = random.Random(5), counter_for(f"openai:{letters}").count
    for _ in range(12):
        budget = rng.choice([12_000, 30_000, 200_000])
        request = replace(rng.choice([draft, child]), budget_tokens=budget, model=f"openai:{letters}")
        record = Synthesizer(make_knowledge(rng)).synthesize(request)
        assert record.tokens == count(record.prompt) <= budget


def test_a_tokenizer_that_makes_more_of_the_whole_stays_within_the_budget(monkeypatch, draft, make_knowledge):
    from prompts.tokens import TokenCounter

    def jealous(text: str) -> int:
        return len(text) // 4 + len(text) ** 2 // 200_000  # the longer, the more a character costs

    monkeypatch.setattr("prompts.synthesizer.counter_for", lambda _: TokenCounter("jealous", jealous))
    record = Synthesizer(make_knowledge(random.Random(1))).synthesize(replace(draft, budget_tokens=6000))
    assert record.tokens == jealous(record.prompt) <= 6000
    assert record.cut
    assert record.provenance
