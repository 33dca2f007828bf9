from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kb import embedding
from kb.bert import NotExpressible, read_config, read_weights
from kb.embedding import OnnxEmbedder, SentenceTransformerEmbedder, load_embedder, model_folder, open_model
from kb.errors import EmbeddingFailed
from kb.folder_model import FolderModel

VARIED = [
    "", " ", "a", "how do I avoid shared-memory bank conflicts?", "tensor " * 600, "x" * 5000,
    "naïve café ÅÄÖ İstanbul straße",
    "矩阵乘法的分块 と タイル", "💥 🚀 ＡＢＣ Ⅷ ﬁ", "\x00\x01 control \u200b\u0301",
    "\ud800 lone surrogate", "tl.dot_scaled(lhs, lhs_scale, \"e4m3\")", "| a | b |\n|---|---|\n| 1 | 2 |",
    "int i = threadIdx.x + blockIdx.x * blockDim.x;\n" * 20, "\n\n\n", "[CLS] [SEP] [MASK] [UNK]",
]  # fmt: skip


KNOWN = (0.036702, -0.055246, -0.090701, -0.006791)


@pytest.fixture(scope="module")
def bundled() -> OnnxEmbedder:
    """As its package ships it, without the change that ours adds."""
    embedder = open_model(model_folder(""))
    assert isinstance(embedder, OnnxEmbedder)
    return embedder


@pytest.fixture
def copy(bundled: OnnxEmbedder, tmp_path: Path) -> Path:
    """A folder with the bundled model's files that may be changed."""
    folder = tmp_path / "model"
    shutil.copytree(bundled.folder, folder, copy_function=lambda s, d: Path(d).symlink_to(s))
    return folder


def change(path: Path, **values: object) -> None:
    data = json.loads(path.read_text()) | values
    path.unlink()
    path.write_text(json.dumps(data))


def test_a_known_vector(bundled: OnnxEmbedder) -> None:
    """The first components as sentence-transformers 6.2 with torch 2.13 gives them."""
    vector = bundled.embed(["how do I avoid shared-memory bank conflicts?"])[0]
    assert np.allclose(vector[:4], KNOWN, atol=1e-5)


def test_the_default_is_the_bundled_model_adapted(bundled: OnnxEmbedder) -> None:
    """Were its package to change, the adapter would not apply any more and have to be trained anew."""
    default = load_embedder()
    assert isinstance(default, OnnxEmbedder)
    assert default.folder == bundled.folder
    assert [file.stem for file in default.adapters] == [bundled.model_id]
    assert default.runtime == "onnxruntime, adapted"
    assert not np.allclose(default.embed(VARIED), bundled.embed(VARIED), atol=0.01)


@pytest.mark.full  # sentence-transformers takes its time to import
def test_vectors_are_those_of_sentence_transformers(bundled: OnnxEmbedder) -> None:
    reference = SentenceTransformerEmbedder(bundled.folder)
    ours, theirs = bundled.embed(VARIED), reference.embed(VARIED)
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float32
    assert np.min(np.sum(ours * theirs, axis=1)) >= 0.99999
    assert bundled.model_id == reference.model_id


def test_a_text_has_one_vector_whatever_it_is_embedded_with(bundled: OnnxEmbedder) -> None:
    together = bundled.embed(VARIED)
    alone = np.concatenate([bundled.embed([text]) for text in VARIED])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_texts_are_computed_beside_others_of_their_length(
    bundled: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[list[int]] = []
    compute = embedding._sums

    def recorded(session: object, tokens: list[list[int]]) -> object:
        shapes.append([len(t) for t in tokens])
        return compute(session, tokens)

    monkeypatch.setattr(embedding, "_sums", recorded)
    bundled.embed([f"{i} " * (1 + i * 37 % 200) for i in range(100)])
    shown = sum(map(sum, shapes))
    assert sum(map(len, shapes)) == 100
    assert sum(len(batch) * max(batch) for batch in shapes) < 1.05 * shown  # a padded batch of all: 1.9


def test_no_text_has_no_vector(bundled: OnnxEmbedder) -> None:
    assert len(bundled.embed([])) == 0


def test_a_query_needs_neither_torch_nor_sentence_transformers() -> None:
    code = (
        "import sys\nfrom kb.embedding import load_embedder\nload_embedder().embed(['bank conflicts'])\n"
        "print(*[m for m in ('torch', 'sentence_transformers', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("file", "values", "reason"),
    [
        ("config.json", {"model_type": "roberta"}, "model_type is 'roberta'"),
        ("config.json", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("config.json", {"position_embedding_type": "relative_key"}, "positions are not absolute"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, "does not pool by the mean"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "changes the text"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "changes the text"),
    ],
)
def test_what_cannot_be_expressed_is_left_to_sentence_transformers_with_the_reason(
    copy: Path, file: str, values: dict[str, object], reason: str
) -> None:
    change(copy / file, **values)
    embedder = open_model(copy)
    assert isinstance(embedder, SentenceTransformerEmbedder)
    assert reason in embedder.runtime


def test_missing_weights_and_a_missing_runtime_are_reasons(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda _: None)
        assert "onnxruntime is not installed" in open_model(copy).runtime
    change(copy / "config.json", num_hidden_layers=7)
    assert "there is no weight encoder.layer.6" in open_model(copy).runtime
    (copy / "model.safetensors").unlink()
    assert "not in one model.safetensors" in open_model(copy).runtime


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{]"], ids=range(4))
def test_weights_that_cannot_be_read_are_no_crash(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(NotExpressible):
        read_weights(tmp_path / "model.safetensors")


def test_configuration_that_cannot_be_read_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(NotExpressible, match=r"config\.json cannot be read"):
        read_config(tmp_path)


def test_weights_in_half_precision_are_computed_in_single(copy: Path, bundled: OnnxEmbedder) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    half = {n: w.astype(np.float16) if w.dtype == np.float32 else w for n, w in weights.items()}
    save_file(half, copy / "model.safetensors")
    embedder = open_model(copy)
    assert isinstance(embedder, OnnxEmbedder)
    assert np.min(np.sum(embedder.embed(VARIED) * bundled.embed(VARIED), axis=1)) > 0.9999


# --- the general path ---


@pytest.fixture
def general(copy: Path) -> Path:
    """The bundled model, changed so that sentence-transformers must compute it: the same vectors."""
    change(copy / "config.json", hidden_act="gelu_python")
    return copy


class Cuda:
    """A GPU as torch shows it; `fails` is what its use raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: BaseException | None = None) -> None:
        import torch

        self.devices: list[str] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
        encode = SentenceTransformerEmbedder._encode

        def spy(embedder: SentenceTransformerEmbedder, texts: list[str], device: str) -> object:
            self.devices.append(device)
            if device == "cuda" and fails is not None:
                raise fails
            return encode(embedder, texts, "cpu")

        monkeypatch.setattr(SentenceTransformerEmbedder, "_encode", spy)


@pytest.mark.full
def test_a_gpu_is_used_and_named(general: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    embedder = open_model(general)
    embedder.embed(["x"])
    assert cuda.devices == ["cuda"]
    assert "on cuda (A GPU" in embedder.runtime


@pytest.mark.full
@pytest.mark.parametrize("why", ["CUDA out of memory. Tried", "CUDA-capable device(s) is/are busy"])
def test_a_gpu_that_fails_leaves_the_work_to_the_cpu_and_says_so(
    general: Path,
    bundled: OnnxEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    cuda = Cuda(monkeypatch, RuntimeError(f"{why}\nlong explanation"))
    embedder = open_model(general)
    with caplog.at_level("WARNING"):
        assert np.allclose(embedder.embed(VARIED), bundled.embed(VARIED), atol=1e-4)
        embedder.embed(["x"])
    assert cuda.devices == ["cuda", "cpu", "cpu"]
    assert why in caplog.text
    assert f"on cpu (the GPU failed: {why};" in embedder.runtime
    assert "\n" not in embedder.runtime


@pytest.mark.full
def test_a_torch_without_gpu_support_beside_a_gpu_is_named(
    general: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("kb.embedding._has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "on cpu (this torch is built for the CPU" in open_model(general).runtime
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "on cpu (torch does not reach the GPU" in open_model(general).runtime


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
        ("config.json", "max_position_embeddings"),
    ],
)
def test_the_window_is_the_smallest_limit_that_a_file_names(copy: Path, file: str, key: str) -> None:
    change(copy / file, **{key: 64})
    assert (open_model(copy).window, open_model(copy).passage_tokens) == (62, 60)
    change(copy / file, **{key: 1e30})
    assert open_model(copy).passage_tokens == 220


def test_how_text_is_cut_depends_on_the_tokenizer_and_the_window_alone(
    copy: Path, bundled: OnnxEmbedder
) -> None:
    change(copy / "config.json", layer_norm_eps=1e-6)
    change(copy / "tokenizer.json", padding=None)
    assert open_model(copy).model_id != bundled.model_id
    assert open_model(copy).cutting == bundled.cutting
    change(copy / "config.json", max_position_embeddings=128)
    assert open_model(copy).cutting != bundled.cutting


@pytest.mark.parametrize("content", ["{", "[]", "3", "[" * 100_000, "\xff"])
def test_a_damaged_file_of_limits_is_named(copy: Path, content: str) -> None:
    file = copy / "tokenizer_config.json"
    file.unlink(missing_ok=True)
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(EmbeddingFailed, match=r"tokenizer_config\.json is damaged"):
        _ = FolderModel(copy).window


def test_a_damaged_tokenizer_is_named(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(EmbeddingFailed, match=r"tokenizer\.json is damaged"):
        FolderModel(copy).count_tokens(["x"])


def test_a_model_that_reads_next_to_nothing_is_refused(copy: Path) -> None:
    change(copy / "config.json", max_position_embeddings=3)
    with pytest.raises(EmbeddingFailed, match="only 3 tokens"):
        _ = FolderModel(copy).passage_tokens
