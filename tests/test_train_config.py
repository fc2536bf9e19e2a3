"""What a run may be: choices, presets, and one line for each mistake."""

import json
from dataclasses import fields

import pytest
import torch

from toyml.model import Transformer
from toyml.train.__main__ import main
from toyml.train.config import CHOICES, PRESETS, Config, preset
from toyml.train.errors import RunError
from train_cases import TINY, tiny

BAD = [
    ("length", 0, "length = 0: expected at least 1"),
    ("layers", -1, "layers = -1: expected at least 1"),
    ("batch", 0, "batch = 0: expected at least 1"),
    ("steps", 0, "steps = 0: expected at least 1"),
    ("checkpoint_every", 0, "checkpoint_every = 0: expected at least 1"),
    ("evaluate_every", 0, "evaluate_every = 0: expected at least 1"),
    ("seed", -1, "seed = -1: expected at least 0"),
    ("warmup", -1, "warmup = -1: expected at least 0"),
    ("lr", -0.1, "lr = -0.1: expected at least 0"),
    ("lr", float("nan"), "lr = nan: expected a finite number"),
    ("matrix_lr", float("inf"), "matrix_lr = inf: expected a finite number"),
    ("clip", -1.0, "clip = -1.0: expected at least 0"),
    ("weight_decay", -1.0, "weight_decay = -1.0: expected at least 0"),
    ("draw_power", float("nan"), "draw_power = nan: expected a finite"),
    ("path_end", -0.5, "path_end = -0.5: expected at least 0"),
    ("path_end", float("inf"), "path_end = inf: expected a finite number"),
    ("ema", 1.0, "ema = 1.0: expected a number below 1"),
    ("ema", -0.1, "ema = -0.1: expected at least 0"),
    ("fixed_sequences", -1, "fixed_sequences = -1: expected at least 0"),
    ("heads", 3, "width = 16, heads = 3: expected"),
    ("width", 18, "width = 18, heads = 2: expected"),
    ("objective", "mdlm", "objective = 'mdlm': expected one of uniform_"),
    ("coupling", "sobol", "coupling = 'sobol': expected one of indep"),
    ("optimizer", "sgd", "optimizer = 'sgd': expected one of adamw, muon"),
    ("device", "tpu", "device = 'tpu': expected one of auto, cpu, cuda"),
    ("attention", "causal", "objective = 'uniform_count', attention = 'cau"),
    ("objective", "autoregressive", "objective = 'autoregressive', atten"),
]


@pytest.mark.parametrize("name, value, message", BAD)
def test_bad_choices(name, value, message):
    with pytest.raises(RunError) as error:
        tiny(**{name: value})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, value, kind",
    [
        ("length", 6.0, "int"),
        ("length", "6", "int"),
        ("seed", True, "int"),
        ("lr", 1, "float"),
        ("data", 3, "str"),
        ("objective", None, "str"),
    ],
)
def test_choices_of_another_kind(name, value, kind):
    with pytest.raises(RunError) as error:
        tiny(**{name: value})
    assert str(error.value) == f"{name} = {value!r}: expected {kind}"


def test_json_and_back():
    config = tiny(lr=0.1 + 0.2, seed=7, data="a 'text' – ü.txt")
    text = config.to_json()
    assert Config.from_json(text) == config
    values = json.loads(text)
    assert values["lr"] == 0.1 + 0.2 and values["data"] == "a 'text' – ü.txt"
    assert list(values) == [field.name for field in fields(Config)]


def test_json_with_other_names():
    values = json.loads(tiny().to_json())
    values["color"] = values.pop("clip")
    with pytest.raises(RunError, match="^config names clip, color: expected"):
        Config.from_json(json.dumps(values))
    values["clip"] = values.pop("color")
    values["lr"] = -1.0
    with pytest.raises(RunError, match="^lr = -1.0"):
        Config.from_json(json.dumps(values))


def test_presets():
    assert set(PRESETS) == {"markov", "text-cpu", "text-gpu"}
    assert all(one.preset == name for name, one in PRESETS.items())
    one = preset("text-cpu", seed=3, lr=0.5)
    assert (one.seed, one.lr) == (3, 0.5)
    assert one.to_json() != PRESETS["text-cpu"].to_json()
    gpu = PRESETS["text-gpu"]
    assert gpu.batch * gpu.length == 16_384 and gpu.device == "cuda"
    with pytest.raises(RunError, match="^preset = 'huge': expected one of ma"):
        preset("huge")
    with pytest.raises(RunError, match="^batch = 0"):
        preset("markov", batch=0)


@pytest.mark.parametrize("name", ["markov", "text-cpu", "text-gpu"])
def test_twins_differ_in_the_attention_alone(name):
    twin = preset(name, objective="autoregressive")
    one = preset(name)
    differ = {
        field.name
        for field in fields(Config)
        if getattr(one, field.name) != getattr(twin, field.name)
    }
    assert differ == {"objective", "attention"}
    assert twin.attention == "causal"


@pytest.mark.parametrize(
    "name, vocab_size, wanted",
    # (2 V + 1) w + w + layers (12 w^2 + 2 w)
    [
        ("markov", 8, 17 * 64 + 64 + 2 * (12 * 64**2 + 128)),
        ("text-cpu", 65, 131 * 128 + 128 + 4 * (12 * 128**2 + 256)),
        ("text-gpu", 65, 131 * 384 + 384 + 6 * (12 * 384**2 + 768)),
    ],
)
def test_parameters_of_the_presets(name, vocab_size, wanted):
    one = preset(name)
    with torch.device("meta"):
        net = Transformer(vocab_size, one.layers, one.width, one.heads)
    assert sum(w.numel() for w in net.parameters()) == wanted
    about = {"markov": 100e3, "text-cpu": 804e3, "text-gpu": 10.7e6}
    assert wanted == pytest.approx(about[name], rel=0.005)


# The command line.


def refused(capsys, *words):
    """The one line that the command leaves, without its first word."""
    assert main(["--quiet", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    head, _, message = err.partition(": ")
    assert head == "toyml.train"
    return message


def test_commands_that_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "run"
    for words, message in [
        (["--preset", "huge"], "preset = 'huge': expected one of markov"),
        (["--layers", 0], "layers = 0: expected at least 1"),
        (["--objective", "mdlm"], "objective = 'mdlm': expected one of"),
        (["--lr", "nan"], "lr = nan: expected a finite number"),
        (["--attention", "causal"], "objective = 'uniform_count', att"),
        (["--data", "sudoku4", "--length", 9], "length = 9: data = 'sud"),
        (
            ["--preset", "text-gpu"],
            "device = 'cuda' (preset text-gpu): this machine has no usable "
            "GPU",
        ),
        (["--preset", "markov", "--device", "cuda"], "device = 'cuda' (pre"),
    ]:
        assert refused(capsys, *words, "--out", out).startswith(message)
        assert not out.exists()
    assert not (tmp_path / "cache").exists()


def test_words_that_are_no_options(capsys, tmp_path):
    for words in (["--colour", "red"], ["--layers", "two"], ["--resumed"]):
        with pytest.raises(SystemExit) as error:
            main([*words, "--out", str(tmp_path / "run")])
        assert error.value.code == 2
        assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_choice_has_an_option(capsys):
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    assert error.value.code == 0
    text = capsys.readouterr().out
    for name in [*TINY, *(field.name for field in fields(Config))]:
        assert "--" + name.replace("_", "-") in text
    for name in ["sudoku4", *PRESETS, *CHOICES["optimizer"]]:
        assert name in text
