"""Text to vectors: a server that speaks OpenAI's `POST /embeddings`. The model is `openai:NAME`.

The key comes from the environment alone: `KERNELEVOLVE_EMBEDDING_API_KEY`, else `OPENAI_API_KEY`. A server
that needs none gets a placeholder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingFailed
from kb.privacy import is_private
from kb.settings import API_KEY_VARIABLE

if TYPE_CHECKING:
    from kb.embedding import Vectors

OPENAI_URL = "https://api.openai.com/v1"

_PASSAGE_TOKENS = 220
_BATCH_TEXTS = 128
_BATCH_TOKENS = 50_000  # OpenAI refuses more than 300,000 at once, by its own count
_RETRIES = 5  # of the client: 408, 409, 429, 5xx and lost connections, with back-off or as the server asks
_CONNECT_S = 10.0
_LONGEST_WORD = 24
_PIECES = re.compile(r"[^\W\d_]+|\d+|\s+|.")
# Statuses by which servers say that a request is too large; some mean the number of texts by it.
_TOO_LARGE = (400, 413, 422)


class EndpointEmbedder:
    """A model behind an address.

    `model_id` is a digest of address, name and dimension; the last takes one request where it is not given:
    what is stored of a model that served before says it. A server that exchanges the model behind a name for
    another of equal dimension is not noticed. One that is not `patient` tries twice, not six times.

    Tokens are estimated (`estimate_tokens`), since the tokenizer is the server's: half of `window`, the
    tokens that the model reads of a text, is left for the error.
    """

    def __init__(
        self,
        name: str,
        base_url: str = "",
        *,
        window: int = 512,
        timeout_s: float = 60.0,
        model_id: str = "",
        patient: bool = True,
    ) -> None:
        self._name = name
        self._url = (base_url or OPENAI_URL).rstrip("/")
        self._timeout_s = timeout_s
        self._known_id = model_id
        self._retries = _RETRIES if patient else 1
        self._batch_texts = _BATCH_TEXTS  # smaller once the server refused as many
        self.window = window // 2
        self.passage_tokens = min(_PASSAGE_TOKENS, self.window)
        self.cutting = f"estimate-1:{self.passage_tokens}"
        self.runtime = f"{name} at {self._url}"

    @cached_property
    def model_id(self) -> str:
        return self._known_id or self._identity(len(self._request(["dimension"])[0]))

    def _identity(self, dimension: int) -> str:
        return hashlib.sha256(f"{self._url}\0{self._name}\0{dimension}".encode()).hexdigest()[:16]

    @cached_property
    def sends_to(self) -> str:
        return "" if is_private(self._url) else self._url

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [estimate_tokens(text) for text in texts]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimension). Raises EmbeddingFailed, which names the address."""
        import numpy as np

        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        cut = [self._cut(text) for text in texts]
        rows = [row for batch in self._batches(cut) for row in self._embed(batch)]
        if len({len(row) for row in rows}) > 1 or self._identity(len(rows[0])) != self.model_id:
            raise EmbeddingFailed(
                f"{self.runtime} answers with vectors of {len(rows[0])}: it serves another model than before",
                "`kernelevolve kb reembed` moves the knowledge base to it",
            )
        vectors: Vectors = np.array(rows, dtype=np.float32)
        norms: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise EmbeddingFailed(
                f"{self.runtime} answered with a vector that has no direction", "check the server's model"
            )
        vectors /= norms
        return vectors

    def _cut(self, text: str) -> str:
        """No more than the model reads, never empty, and nothing that JSON cannot carry."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        while estimate_tokens(text) > self.window:
            text = text[: len(text) * self.window // estimate_tokens(text)]
        return text if text.strip() else "."

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            count = estimate_tokens(text)
            if batch and (len(batch) >= self._batch_texts or tokens + count > _BATCH_TOKENS):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += count
        yield batch

    def _embed(self, batch: list[str]) -> list[list[float]]:
        """One request, or halves of it where the server takes fewer texts at once."""
        try:
            return self._request(batch)
        except _TooLarge:
            half = len(batch) // 2
            self._batch_texts = min(self._batch_texts, half)
        return self._embed(batch[:half]) + self._embed(batch[half:])

    def _request(self, texts: list[str]) -> list[list[float]]:
        import openai

        try:
            answer = self._client.embeddings.with_raw_response.create(
                input=texts, model=self._name, encoding_format="float"
            )
            body = answer.http_response.json()
        except openai.APIStatusError as error:
            if len(texts) > 1 and error.status_code in _TOO_LARGE:
                raise _TooLarge from error
            raise self._refusal(error) from error
        except openai.APITimeoutError as error:
            raise EmbeddingFailed(
                f"{self.runtime} did not answer within {self._timeout_s:.0f} s, {self._retries + 1} times",
                "raise KERNELEVOLVE_EMBEDDING_TIMEOUT_S, or look at the server",
            ) from error
        except openai.APIConnectionError as error:
            raise EmbeddingFailed(
                f"{self.runtime} cannot be reached: {_why(error.__cause__ or error)}",
                "check KERNELEVOLVE_EMBEDDING_BASE_URL and that the server runs",
            ) from error
        except (openai.OpenAIError, ValueError) as error:  # what is no JSON, too
            raise self._nonsense(_why(error)) from error
        return self._vectors(body, len(texts))

    def _vectors(self, body: Any, wanted: int) -> list[list[float]]:
        """The vectors of a response in the order of the texts."""
        try:
            data = sorted(body["data"], key=lambda item: int(item["index"]))
            if [item["index"] for item in data] != list(range(wanted)):
                raise self._nonsense(f"{len(data)} vectors for {wanted} texts")
            return [[float(x) for x in item["embedding"]] for item in data]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._nonsense(f"no `data` with `index` and `embedding` ({_why(error)})") from error

    def _nonsense(self, why: str) -> EmbeddingFailed:
        return EmbeddingFailed(
            f"{self.runtime} does not answer as an embedding endpoint does: {why}",
            "the address usually ends in /v1; check KERNELEVOLVE_EMBEDDING_BASE_URL",
        )

    def _refusal(self, error: Any) -> EmbeddingFailed:
        status, said = error.status_code, _why(error)
        if status in (401, 403):
            return EmbeddingFailed(
                f"{self.runtime} rejects the key ({status})", f"set {API_KEY_VARIABLE} or OPENAI_API_KEY"
            )
        if status == 404:
            return EmbeddingFailed(
                f"{self.runtime}: no such model or address: {said}",
                "check KERNELEVOLVE_EMBEDDING_MODEL and KERNELEVOLVE_EMBEDDING_BASE_URL (usually …/v1)",
            )
        if status == 429 or status >= 500:
            return EmbeddingFailed(
                f"{self.runtime} still refuses after {self._retries + 1} attempts ({status}): {said}",
                "what was embedded is kept; run the command again later",
            )
        return EmbeddingFailed(
            f"{self.runtime} refuses the request ({status}): {said}",
            "if a text is too long for it, set KERNELEVOLVE_EMBEDDING_WINDOW to what the model reads",
        )

    @cached_property
    def _client(self) -> Any:
        import openai

        return openai.OpenAI(
            api_key=os.environ.get(API_KEY_VARIABLE) or os.environ.get("OPENAI_API_KEY") or "none",
            base_url=self._url,
            max_retries=self._retries,
            # What decides whether texts may be sent is the address: neither a redirect nor a proxy may carry
            # them elsewhere.
            http_client=openai.DefaultHttpxClient(
                follow_redirects=False,
                trust_env=bool(self.sends_to),
                timeout=openai.Timeout(self._timeout_s, connect=min(_CONNECT_S, self._timeout_s)),
            ),
        )


class _TooLarge(Exception):
    """The server refuses a request of several texts."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a model makes of `text`, without its tokenizer.

    Four letters are a token, two digits, every sign and every line break one; of what is too long for a word,
    two letters; what is not ASCII counts for half of its UTF-8 bytes. Common tokenizers make at most twice as
    many of it, usually fewer.
    """
    total = 0
    for piece in _PIECES.findall(text.replace("\n", " \r")):
        if piece.isascii():
            if piece.isalpha():
                total += (len(piece) + 3) // 4 if len(piece) <= _LONGEST_WORD else (len(piece) + 1) // 2
            elif piece.isdigit():
                total += (len(piece) + 1) // 2
            elif piece != " ":
                total += 1
        else:
            total += (len(piece.encode("utf-8", "replace")) + 1) // 2
    return total


def _why(error: BaseException) -> str:
    """What an error says, in one line; of a server's answer, its message."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        body = body.get("error", body)
        error_text = str(body.get("message") or body) if isinstance(body, dict) else str(body)
    else:
        error_text = str(error)
    text = " ".join(error_text.split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
