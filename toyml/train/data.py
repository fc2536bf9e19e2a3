"""What a run learns from: sources of known entropy, or text by characters."""

import hashlib
import os
import sysconfig
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..sources import Markov, Sudoku4
from .errors import RunError

MARKOV_VOCAB, MARKOV_CONCENTRATION, MARKOV_SEED = 8, 0.3, 0
VALIDATION_SEED, VALIDATION_SIZE = 1, 4096
STDLIB_BYTES = 4_000_000

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
    "tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)


@dataclass(frozen=True)
class FromSource:
    """Sequences of a source with exact conditionals.

    fixed: int64 [N, L], the only sequences to train on; None for fresh ones.
    """

    source: object
    validation: np.ndarray
    fixed: np.ndarray = None

    @property
    def vocab_size(self):
        """The vocabulary size V of the source."""
        return self.source.vocab_size

    @property
    def vocabulary(self):
        """The tokens as strings: their numbers."""
        return [str(token) for token in range(self.vocab_size)]

    def draw(self, batch, rng):
        """int64 [batch, L]."""
        if self.fixed is None:
            return self.source.sample(batch, rng)
        return self.fixed[rng.integers(len(self.fixed), size=batch)]

    def decode(self, tokens):
        """Tokens [L] as their numbers, with spaces between."""
        return " ".join(map(str, tokens))


@dataclass(frozen=True)
class Text:
    """Windows of L characters; the last tenth of the text is validation.

    ids: int64, the training part. validation: [n, L], windows side by side.
    starts: the only places where training windows begin; None for all.
    """

    vocabulary: list
    ids: np.ndarray
    validation: np.ndarray
    length: int
    starts: np.ndarray = None
    source = None

    @property
    def vocab_size(self):
        """The number of characters V."""
        return len(self.vocabulary)

    def draw(self, batch, rng):
        """int64 [batch, L]."""
        if self.starts is None:
            last = len(self.ids) - self.length
            start = rng.integers(last + 1, size=batch)
        else:
            start = self.starts[rng.integers(len(self.starts), size=batch)]
        return self.ids[start[:, None] + np.arange(self.length)]

    def decode(self, tokens):
        """Tokens [L] as a string of L characters."""
        return "".join(self.vocabulary[token] for token in tokens)


def load(config):
    """The data that a configuration names; RunError where it cannot be had."""
    sources = {"markov": markov, "sudoku4": lambda length: Sudoku4()}
    if config.data in sources:
        return _from_source(sources[config.data](config.length), config)
    return split(read_text(config.data), config)


def markov(length):
    """The chain of the preset: V = 8, rows from Dirichlet(0.3), one seed.

    It starts in its stationary law, so that every position is alike.
    """
    rng = np.random.default_rng(MARKOV_SEED)
    alpha = np.full(MARKOV_VOCAB, MARKOV_CONCENTRATION)
    rows = rng.dirichlet(alpha, size=MARKOV_VOCAB)
    system = np.vstack([rows.T - np.eye(MARKOV_VOCAB), np.ones(MARKOV_VOCAB)])
    target = np.append(np.zeros(MARKOV_VOCAB), 1.0)
    stationary = np.linalg.lstsq(system, target, rcond=None)[0]
    return Markov(stationary, rows, length)


def split(text, config):
    """A ``Text`` of windows of the configuration's length."""
    vocabulary = sorted(set(text))
    length = config.length
    index = {character: i for i, character in enumerate(vocabulary)}
    ids = np.array([index[character] for character in text], dtype=np.int64)
    cut = len(ids) * 9 // 10
    tail = ids[cut:]
    if min(cut, len(tail)) < length:
        raise RunError(
            f"data = {config.data!r}: {len(ids)} characters, of which the "
            f"last tenth is {len(tail)}; expected at least length = {length} "
            "there, the context"
        )
    windows = tail[: len(tail) // length * length].reshape(-1, length)
    starts = None
    if config.fixed_sequences:
        rng = np.random.default_rng(config.seed)
        starts = rng.integers(cut - length + 1, size=config.fixed_sequences)
    return Text(vocabulary, ids[:cut], windows, length, starts)


def read_text(name):
    """The text of "shakespeare", "stdlib" or a path, decoded as UTF-8."""
    if name == "stdlib":
        return standard_library()
    path = shakespeare() if name == "shakespeare" else Path(name)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RunError(
            f"data = {name!r}: {error.strerror}; expected markov, sudoku4, "
            "shakespeare, stdlib or the path of a text file"
        ) from None
    except UnicodeDecodeError as error:
        raise RunError(
            f"data = {name!r}: byte {error.start} is not UTF-8; expected a "
            "text file in UTF-8"
        ) from None
    if not text:
        raise RunError(f"data = {name!r}: the file is empty; expected text")
    return text


def standard_library():
    """The sources of Python's own library in order of name, 4 MB of them."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts, size = [], 0
    for path in sorted(folder.glob("*.py")):
        # Bytes outside ASCII would blow up the vocabulary of a tiny model.
        text = path.read_bytes()
        if text.isascii():
            parts.append(text.decode("ascii"))
            size += len(text)
        if size >= STDLIB_BYTES:
            break
    return "".join(parts)


def shakespeare():
    """The path of the cached file, which is downloaded once and checked."""
    cache = Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    )
    path = cache / "toyml" / "tinyshakespeare.txt"
    if not path.exists():
        advice = (
            "download it where there is a network, from "
            f"{SHAKESPEARE_URL}, and pass its path as --data"
        )
        try:
            with urllib.request.urlopen(SHAKESPEARE_URL, timeout=30) as page:
                content = page.read()
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise RunError(
                f"data = 'shakespeare': no download ({reason}); {advice}"
            ) from None
        _check_sha256(content)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.replace(path)
    _check_sha256(path.read_bytes(), path)
    return path


def _check_sha256(content, path=None):
    found = hashlib.sha256(content).hexdigest()
    if found != SHAKESPEARE_SHA256:
        raise RunError(
            f"data = 'shakespeare': sha256 {found}, expected "
            f"{SHAKESPEARE_SHA256}; "
            + (f"delete {path}" if path else "the address has another file")
        )


def _from_source(source, config):
    if config.length != source.length:
        raise RunError(
            f"length = {config.length}: data = {config.data!r} has sequences "
            f"of length {source.length}; expected that"
        )
    rng = np.random.default_rng(VALIDATION_SEED)
    validation = source.sample(VALIDATION_SIZE, rng)
    fixed = None
    if config.fixed_sequences:
        rng = np.random.default_rng([config.seed, 1])
        fixed = source.sample(config.fixed_sequences, rng)
    return FromSource(source, validation, fixed)
