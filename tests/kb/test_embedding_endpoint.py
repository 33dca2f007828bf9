"""An endpoint as embedding model, against a real HTTP server on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb import KnowledgeBase, Settings
from kb.embedding import load_embedder
from kb.embedding_endpoint import EndpointEmbedder, estimate_tokens
from kb.errors import EmbeddingFailed, LocalOnly, SettingsError
from kb.privacy import is_private
from kb.reembed import reembed
from kb.serving import open_embedder
from kb.tables import Source

Store = Callable[..., None]
AT_ONCE = {"retry-after-ms": "1"}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "KERNELEVOLVE_EMBEDDING_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(server: Any) -> EndpointEmbedder:
    return EndpointEmbedder("m", server.url)


def test_vectors_are_the_servers_in_order_and_of_unit_length(server: Any, model: EndpointEmbedder) -> None:
    texts = [f"text number {i}" for i in range(300)]
    vectors = model.embed(texts)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, server.embedder.embed(texts), atol=1e-6)
    sizes = [len(request["input"]) for request in server.requests]
    assert max(sizes) <= 128
    assert {request["model"] for request in server.requests} == {"m"}
    assert model.embed([]).shape == (0, 0)


def test_long_texts_make_small_batches(server: Any) -> None:
    EndpointEmbedder("m", server.url, window=8192).embed(["word " * 4000] * 30)
    assert all(len(request["input"]) <= 12 for request in server.requests)


def test_a_server_that_takes_few_texts_gets_few(server: Any, model: EndpointEmbedder) -> None:
    server.most_texts = 20
    texts = [f"text {i}" for i in range(100)]
    assert np.allclose(model.embed(texts), server.embedder.embed(texts), atol=1e-6)
    server.requests.clear()
    model.embed(texts)
    assert max(len(request["input"]) for request in server.requests) <= 20, "it is remembered"


def test_model_id_tells_address_name_and_dimension_apart(server: Any) -> None:
    ids = {EndpointEmbedder(name, server.url).model_id for name in ("a", "b")}
    server.embedder = type(server.embedder)("served", dimension=32)
    ids.add(EndpointEmbedder("a", server.url).model_id)
    ids.add(EndpointEmbedder("a", server.url.replace("127.0.0.1", "localhost")).model_id)
    assert len(ids) == 4
    assert EndpointEmbedder("a", server.url + "/").model_id in ids


def test_a_model_exchanged_behind_its_name_is_an_error(server: Any) -> None:
    known = EndpointEmbedder("m", server.url).model_id
    server.embedder = type(server.embedder)("served", dimension=32)
    model = EndpointEmbedder("m", server.url, model_id=known)
    with pytest.raises(EmbeddingFailed, match="another model") as caught:
        model.embed(["x"])
    assert "reembed" in caught.value.hint


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_may_pass_is_tried_again(server: Any, model: EndpointEmbedder, status: int) -> None:
    server.script = [(status, {"error": {"message": "busy"}}, AT_ONCE)] * 3
    assert len(model.embed(["x"])) == 1


@pytest.mark.parametrize(
    ("status", "attempts", "says"),
    [
        (429, 6, r"still refuses after 6 attempts \(429\): no luck"),
        (503, 6, r"still refuses after 6 attempts \(503\): no luck"),
        (401, 1, "rejects the key"),
        (404, 1, "no such model or address: no luck"),
        (400, 1, r"refuses the request \(400\): no luck"),
        (307, 1, r"refuses the request \(307\)"),
    ],
)
def test_refusals_are_one_typed_error_that_names_the_endpoint(
    server: Any, model: EndpointEmbedder, status: int, attempts: int, says: str
) -> None:
    headers = AT_ONCE | {"Location": "http://127.0.0.1:1/v1/embeddings"}
    server.script = [(status, {"error": {"message": "no luck"}}, headers)] * 10
    with pytest.raises(EmbeddingFailed, match=says) as caught:
        model.embed(["x"])
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert len(server.requests) == attempts


@pytest.mark.parametrize(
    "body",
    [
        b"<html>welcome</html>", b"[]", b"{}", b'{"data": [{"index": 0}]}',
        b'{"data": []}', b'{"data": [{"index": 1, "embedding": [1, 2]}]}',
        b'{"data": [{"index": 0, "embedding": [0, 0]}]}', b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}', b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
    ],
)  # fmt: skip
def test_nonsense_is_an_error_not_a_vector(server: Any, model: EndpointEmbedder, body: bytes) -> None:
    server.script = [(200, body, {})] * 2
    with pytest.raises(EmbeddingFailed) as caught:
        model.embed(["x"])
    assert server.url in str(caught.value)


def test_an_answer_in_which_vectors_differ_in_length_is_an_error(
    server: Any, model: EndpointEmbedder
) -> None:
    rows = [{"index": 0, "embedding": [1.0] * 64}, {"index": 1, "embedding": [1.0] * 8}]
    server.script = [(200, {"data": rows}, {})]
    with pytest.raises(EmbeddingFailed):
        model.embed(["x", "y"])


def test_a_server_that_is_not_there_and_one_that_is_slow_have_their_limits(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(EmbeddingFailed, match="cannot be reached") as caught:
            EndpointEmbedder("m", gone).embed(["x"])
    assert gone in str(caught.value)
    monkeypatch.undo()
    server.delay_s = 0.5
    monkeypatch.setattr("kb.embedding_endpoint._RETRIES", 0)
    with pytest.raises(EmbeddingFailed, match="did not answer within"):
        EndpointEmbedder("m", server.url, timeout_s=0.1).embed(["x"])


def test_the_key_comes_from_the_environment(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    EndpointEmbedder("m", server.url).embed(["x"])
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    EndpointEmbedder("m", server.url).embed(["x"])
    monkeypatch.setenv("KERNELEVOLVE_EMBEDDING_API_KEY", "own")
    EndpointEmbedder("m", server.url).embed(["x"])
    assert [*dict.fromkeys(server.keys)] == ["Bearer none", "Bearer general", "Bearer own"]
    Settings()  # the variable is known
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernelevolve.toml").write_text('embedding_api_key = "in a file"')
    with pytest.raises(SettingsError, match="unknown setting"):
        Settings()


def test_nothing_but_the_client_is_imported_and_nothing_is_downloaded(server: Any) -> None:
    code = (
        "import sys\nfrom kb.embedding_endpoint import EndpointEmbedder\n"
        f"EndpointEmbedder('m', {server.url!r}).embed(['bank conflicts'])\n"
        "print(*[m for m in ('torch', 'tiktoken', 'langchain_openai', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_texts_of_any_kind_reach_the_server_within_the_window(server: Any) -> None:
    model = EndpointEmbedder("m", server.url, window=64)
    texts = ["", " \n", "\ud800 lone", "word " * 500, "x" * 5000, "矩阵" * 300, "\x00\x01", "💥" * 200]
    assert model.embed(texts).shape == (len(texts), 64)
    assert all(text.strip() and estimate_tokens(text) <= 32 for text in server.texts[1:])


@pytest.mark.parametrize("window", [48, 256, 512, 8192])
def test_passages_leave_room_for_what_the_estimate_misses(window: int) -> None:
    model = EndpointEmbedder("m", window=window)
    assert model.passage_tokens <= window // 2
    assert model.passage_tokens <= 220


HARD = [
    "cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, stream);\n", "the quick brown fox jumps over it ",
    "0x7fff325a6690 0xdeadbeef 1234567890 3.14159265358979 ", "矩阵乘法的分块与共享内存",
    "тензорные ядра ускоряют ", "naïve café Übergröße ", "💥🚀🧪 ",
    "|---|---|:--:|\n| a | b |\n", "x" * 90 + " ", "qzjxkvbpyfgw" * 7 + " ",
    "SGVsbG8gV29ybGQhIFRoaXMgaXMgYmFzZTY0 ", "⟨ψ|φ⟩ ≤ ∑ᵢ αᵢ² → ∞ ", "    if (a[i] != b[j]) { ++n; }\n",
]  # fmt: skip


@pytest.mark.parametrize("text", HARD)
def test_the_estimate_is_no_less_than_half_of_a_real_count(text: str) -> None:
    assert load_embedder().count_tokens([text * 5])[0] <= 2 * estimate_tokens(text * 5)


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://localhost:8080/v1", True), ("http://127.0.0.1/v1", True), ("http://[::1]:8080/v1", True),
        ("http://10.1.2.3/v1", True), ("http://192.168.0.7:11434/v1", True), ("http://172.20.0.1/v1", True),
        ("http://[fd00::1]/v1", True), ("http://8.8.8.8/v1", False), ("http://172.32.0.1/v1", False),
        ("http://[2001:4860:4860::8888]/v1", False), ("http://[::ffff:8.8.8.8]/v1", False),
        ("http://[::ffff:10.0.0.1]/v1", True), ("http://no-such-host.invalid/v1", False),
    ],
)  # fmt: skip
def test_what_is_near_is_told_by_the_address(url: str, private: bool) -> None:
    assert is_private(url) is private


def test_a_name_counts_by_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[tuple[Any, ...]] = [(0, 0, 0, "", ("10.0.0.5", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: known)
    assert is_private("http://gpu-box/v1")
    known.append((0, 0, 0, "", ("93.184.216.34", 0)))
    assert not is_private("http://gpu-box/v1")


@pytest.fixture
def served(settings: Settings, server: Any) -> Settings:
    return settings.model_copy(update={"embedding_model": "openai:m", "embedding_base_url": server.url})


def test_a_knowledge_base_on_an_endpoint(served: Settings, server: Any, store: Store) -> None:
    for _ in range(2):
        with KnowledgeBase.open(served) as kb:
            store(kb, "a.md", "first about tiling\n\nsecond about vector loads")
            assert kb.query("tiling").hits[0].why["similarity"] > 0
            assert server.url in kb.stats()["embedding"]["runtime"]
            assert kb.notices == []
    assert sum("about tiling" in text for text in server.texts) == 1, "vectors are kept"


def test_an_endpoint_that_serves_another_model_is_moved_to_when_asked(
    served: Settings, server: Any, store: Store
) -> None:
    with KnowledgeBase.open(served) as kb:
        store(kb, "a.md", "first about tiling")
        server.embedder = type(server.embedder)("another", dimension=16)
        with pytest.raises(EmbeddingFailed, match="another model"):
            kb.query("tiling")
    server.requests.clear()
    with KnowledgeBase.open(served) as kb:
        assert kb.stats()["counts"]["passage"] == 1
        assert server.requests == [], "nobody who does not ask or embed needs the server"
        reembed(kb)
        assert "is another model by now" in kb.notices[0]
        assert kb.query("tiling").hits[0].why["similarity"] > 0


def make_local_only(kb: KnowledgeBase) -> None:
    with kb.session() as session:
        session.add(Source(key="/private", name="private", root="/private", visibility="local-only"))
        session.commit()


def test_local_only_texts_stay_in_the_private_network(
    served: Settings, server: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KnowledgeBase.open(served) as kb:
        make_local_only(kb)
        store(kb, "near.md", "a secret about tiling")
        assert any("a secret" in text for text in server.texts), "this machine is no way out"
        monkeypatch.setattr("kb.embedding_endpoint.is_private", lambda _: False)
    server.requests.clear()
    with KnowledgeBase.open(served) as kb:
        with pytest.raises(LocalOnly, match="/private is local-only") as caught:
            store(kb, "far.md", "another secret")
        assert server.url in str(caught.value)
        kb.engine.connect()
        with kb.session() as session:
            session.connection().exec_driver_sql("DELETE FROM embedding")
            session.commit()
        with pytest.raises(LocalOnly):
            kb.query("tiling")
    assert not any("secret" in text for text in server.texts)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"embedding_base_url": "http://x/v1"}, "embedding_base_url is for"),
        ({"embedding_model": "openai:m", "embedding_base_url": "x/v1"}, "an address such as"),
        ({"embedding_model": "openai:m", "embedding_base_url": "https://u:p@x/v1"}, "no credentials"),
        ({"embedding_model": "openai:"}, "openai:NAME"),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Settings(**values)


def test_without_an_address_it_is_openais() -> None:
    assert "https://api.openai.com/v1" in open_embedder(Settings(embedding_model="openai:m")).runtime


def test_a_proxy_of_the_environment_carries_nothing_from_the_private_network(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert len(EndpointEmbedder("m", server.url).embed(["x"])) == 1


def test_an_endpoint_that_is_down_while_another_model_takes_its_place_is_not_given_up(
    served: Settings, server: Any, store: Store, tiny_model: Any
) -> None:
    with KnowledgeBase.open(served) as kb:
        store(kb, "a.md", "first about tiling")
        before = kb.serving.model_id
    server.script = [(503, {}, {"Retry-After": "0"})] * 2
    local = served.model_copy(update={"embedding_model": str(tiny_model), "embedding_base_url": ""})
    with KnowledgeBase.open(local) as kb:
        (hit,) = kb.query("tiling").hits
        assert hit.why["similarity"] is None
        assert server.script == [], "asked twice, not six times"
        assert "(503)" in kb.notices[1]
        assert "words alone find passages" in kb.notices[1]
        assert kb.serving.model_id == before
        assert kb.query("tiling").hits[0].why["similarity"] is not None, "it is back"
        assert reembed(kb).switched
        assert kb.query("tiling").hits[0].why["similarity"] is not None
