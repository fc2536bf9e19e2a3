"""What a run learns from: texts, the library, a download, the sources."""

import bisect
import hashlib
import urllib.error
import urllib.request
from math import log
from pathlib import Path

import numpy as np
import pytest

from toyml.sources import Sudoku4
from toyml.train import data
from toyml.train.__main__ import main
from toyml.train.errors import RunError
from train_cases import flags, tiny

TEXT = "to be or not to be, that is the question: ö – whether 'tis " * 7


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


# Texts.


def test_a_text_is_split_at_its_last_tenth(text):
    loaded = data.load(tiny(data=text, length=10))
    cut = len(TEXT) * 9 // 10
    assert loaded.decode(loaded.ids) == TEXT[:cut]
    assert loaded.ids.dtype == loaded.validation.dtype == np.int64
    rest = TEXT[cut:]
    assert len(loaded.validation) == len(rest) // 10
    for number, window in enumerate(loaded.validation):
        assert loaded.decode(window) == rest[10 * number : 10 * number + 10]
    assert loaded.source is None


def test_the_vocabulary_is_that_of_the_whole_text(text, tmp_path):
    loaded = data.load(tiny(data=text))
    assert loaded.vocabulary == sorted(set(TEXT))
    assert loaded.vocab_size == len(set(TEXT))
    path = tmp_path / "late.txt"
    path.write_text("ab" * 90 + "z" * 20)  # z in the last tenth alone
    late = data.load(tiny(data=str(path)))
    assert late.vocabulary == ["a", "b", "z"]
    assert late.ids.max() == 1 and np.all(late.validation == 2)


def test_windows_are_drawn_from_everywhere(tmp_path):
    """60 characters, all different: starts 0..48, each as often as another."""
    path, n = tmp_path / "all.txt", 9800
    path.write_text("".join(map(chr, range(65, 125))))
    loaded = data.load(tiny(data=str(path)))
    drawn = loaded.draw(n, np.random.default_rng(0))
    assert drawn.shape == (n, 6) and np.all(np.diff(drawn) == 1)
    seen = np.bincount(drawn[:, 0], minlength=49)
    assert len(seen) == 49
    assert np.all(abs(seen - n / 49) < 5 * np.sqrt(n / 49))


def test_windows_of_one_length_of_text(tmp_path):
    """The shortest text: one validation window, nine places to train."""
    path = tmp_path / "ten.txt"
    path.write_text("0123456789" * 6)
    loaded = data.load(tiny(data=str(path), length=6))
    assert loaded.decode(loaded.validation[0]) == "456789"
    assert len(loaded.validation) == 1


def test_fixed_sequences_of_a_text(text):
    config = tiny(data=text, fixed_sequences=3, seed=4)
    loaded, again = data.load(config), data.load(config)
    rng = np.random.default_rng(1)
    drawn = {loaded.decode(row) for row in loaded.draw(200, rng)}
    assert 1 < len(drawn) <= 3
    same = {again.decode(row) for row in again.draw(200, rng)}
    other = data.load(tiny(data=text, fixed_sequences=3, seed=5))
    other = {other.decode(row) for row in other.draw(200, rng)}
    assert same == drawn != other
    cut = len(TEXT) * 9 // 10
    assert all(window in TEXT[:cut] for window in drawn)


def test_line_ends_and_bytes_survive(tmp_path):
    path = tmp_path / "crlf.txt"
    content = "a\r\nb\tc\u2028\U0001f600" * 30
    path.write_bytes(content.encode())
    loaded = data.load(tiny(data=str(path)))
    assert loaded.decode(loaded.ids) == content[: len(content) * 9 // 10]


def refused(capsys, tmp_path, name, **changes):
    out = tmp_path / "run"
    assert main(flags(out, data=name, **changes)) == 2
    written, err = capsys.readouterr()
    assert written == "" and err.count("\n") == 1 and not out.exists()
    assert err.startswith(f"toyml.train: data = {str(name)!r}: ")
    return err


def test_texts_that_are_refused(capsys, tmp_path):
    empty, binary, short = (tmp_path / name for name in "abc")
    empty.write_bytes(b"")
    binary.write_bytes(b"four\xff" * 50)
    short.write_text("x" * 59)
    line = refused(capsys, tmp_path, empty)
    assert "the file is empty; expected text" in line
    line = refused(capsys, tmp_path, binary)
    assert "byte 4 is not UTF-8; expected" in line
    # 59 characters: the last tenth begins at 53, 6 of them, one too few
    line = refused(capsys, tmp_path, short, length=7)
    assert "59 characters" in line and "length = 7" in line
    assert data.load(tiny(data=str(short), length=6)).validation.size == 6
    line = refused(capsys, tmp_path, tmp_path / "none")
    assert "No such file" in line and "expected markov, sudoku4" in line
    line = refused(capsys, tmp_path, tmp_path)
    assert "Is a directory" in line


# The library of Python.


def test_the_standard_library():
    text = data.read_text("stdlib")
    assert text.isascii() and len(text) > 2_000_000
    assert text == data.read_text("stdlib")
    assert Path(bisect.__file__).read_text() in text
    assert len(set(text)) <= 128


# The download.


class Page:
    def __init__(self, content):
        self.content = content

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self):
        return self.content


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toyml" / "tinyshakespeare.txt"


def opens(monkeypatch, answer):
    """Answer every request with bytes or an error; lists the addresses."""
    asked = []

    def open_(address, timeout):
        asked.append(address)
        if isinstance(answer, Exception):
            raise answer
        return Page(answer)

    monkeypatch.setattr(urllib.request, "urlopen", open_)
    return asked


@pytest.mark.parametrize(
    "error, reason",
    [
        (urllib.error.URLError("no route to host"), "no route to host"),
        (TimeoutError("timed out"), "timed out"),
        (ConnectionResetError("reset"), "reset"),
    ],
)
def test_no_network(capsys, cache, tmp_path, monkeypatch, error, reason):
    opens(monkeypatch, error)
    line = refused(capsys, tmp_path, "shakespeare")
    assert reason in line and data.SHAKESPEARE_URL in line
    assert "pass its path as --data" in line
    assert not cache.exists()


def test_another_file_at_the_address(capsys, cache, tmp_path, monkeypatch):
    opens(monkeypatch, b"Page not found")
    line = refused(capsys, tmp_path, "shakespeare")
    found = hashlib.sha256(b"Page not found").hexdigest()
    assert found in line and data.SHAKESPEARE_SHA256 in line
    assert not cache.exists()


def test_the_download_is_kept(cache, monkeypatch):
    content = b"To be, or not to be" * 9
    monkeypatch.setattr(
        data, "SHAKESPEARE_SHA256", hashlib.sha256(content).hexdigest()
    )
    asked = opens(monkeypatch, content)
    config = tiny(data="shakespeare")
    assert data.load(config).vocabulary == sorted(set(content.decode()))
    assert cache.read_bytes() == content
    assert data.load(config).vocabulary == sorted(set(content.decode()))
    assert asked == [data.SHAKESPEARE_URL]
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def test_a_spoilt_cache(capsys, cache, tmp_path, monkeypatch):
    asked = opens(monkeypatch, b"never asked for")
    cache.parent.mkdir(parents=True)
    cache.write_bytes(b"half a file")
    line = refused(capsys, tmp_path, "shakespeare")
    assert f"delete {cache}" in line and asked == []
    assert cache.read_bytes() == b"half a file"


# Sources.


def test_the_markov_source():
    loaded = data.load(tiny(data="markov", length=16))
    chain = loaded.source
    assert (chain.vocab_size, chain.length) == (8, 16)
    assert loaded.vocabulary == list("01234567")
    # the entropy rate of a stationary chain, step by step
    p, rows = chain.initial, chain.transition
    assert p @ rows == pytest.approx(p, abs=1e-14)
    assert p == pytest.approx(np.linalg.matrix_power(rows, 400)[3], abs=1e-12)
    rate = -sum(
        p[i] * rows[i, j] * log(rows[i, j])
        for i in range(8)
        for j in range(8)
        if rows[i, j] > 0
    )
    first = -sum(v * log(v) for v in p)
    assert chain.entropy() == pytest.approx(first + 15 * rate, rel=1e-12)
    assert chain.entropy() / 16 <= 0.75 * log(8)
    again = data.load(tiny(data="markov", length=16, seed=9))
    assert np.array_equal(again.source.transition, rows)
    assert np.array_equal(again.validation, loaded.validation)


def test_validation_of_a_source_is_its_own_sample():
    """Not what is trained on, and of the law: frequencies of the tokens."""
    loaded = data.load(tiny())
    assert loaded.validation.shape == (4096, 6)
    seen = np.bincount(loaded.validation.ravel(), minlength=8)
    p = loaded.source.initial
    assert np.all(abs(seen / 4096 / 6 - p) < 5 * np.sqrt(p / 4096))
    drawn = loaded.draw(4096, np.random.default_rng(1 + 0))
    assert drawn.shape == (4096, 6) and drawn.dtype == np.int64


def test_fixed_sequences_of_a_source():
    config = tiny(fixed_sequences=5, seed=2)
    loaded = data.load(config)
    drawn = loaded.draw(500, np.random.default_rng(0))
    kept = set(map(tuple, loaded.fixed))
    assert set(map(tuple, drawn)) == kept and len(loaded.fixed) == 5
    other = data.load(tiny(fixed_sequences=5, seed=3)).fixed
    assert set(map(tuple, other)) != kept
    validation = loaded.validation
    assert not np.array_equal(validation[:5], loaded.fixed)


def test_sudoku():
    loaded = data.load(tiny(data="sudoku4", length=16))
    assert isinstance(loaded.source, Sudoku4) and loaded.vocab_size == 4
    assert loaded.decode([3, 0, 1]) == "3 0 1"
    with pytest.raises(RunError, match="^length = 9: data = 'sudoku4' has"):
        data.load(tiny(data="sudoku4", length=9))
