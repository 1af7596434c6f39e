"""Words and YAML into typed options, and one sentence for whatever is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import tyro

import anypo.recipes
from anypo.cli.arguments import Chosen, described, typed, with_arguments
from anypo.cli.options import Flag, convert, documented, gather, guess, leaves, parse
from anypo.cli.train import Train
from anypo.core import discover
from anypo.core.errors import UsageError
from anypo.engine.settings import Settings

METHODS = discover.methods(anypo.recipes)


@dataclass(frozen=True)
class Toy:
    """A command."""

    place: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="where")] = "here"
    size: int = 1
    save_every: str = "300s"
    rate: float = 0.5
    config: str = ""
    json: Flag = False


@dataclass(frozen=True)
class Wants:
    """A command that wants files."""

    files: tyro.conf.Positional[tuple[str, ...]]
    strict: Flag = False


def toy(*words: str) -> Toy:
    """The options of some words."""
    return parse(Toy, gather(Toy, list(words)), "toy")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Toy()),
        (["there", "--size", "3"], Toy("there", 3)),
        (["--size=3", "there"], Toy("there", 3)),
        (["--place", "there", "--json"], Toy("there", json=True)),
        (["--save-every", "20"], Toy(save_every="20")),
        (["--save_every=20"], Toy(save_every="20")),
        (["--rate", "-1e-3"], Toy(rate=-1e-3)),
        (["--rate", "inf"], Toy(rate=float("inf"))),
        (["--save-every="], Toy(save_every="")),
        (["--json", "there"], Toy("there", json=True)),
    ],
)
def test_words_become_options(words, expected):
    assert toy(*words) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sise", "3"], "anypo toy has no option --sise; did you mean --size"),
        (["--xyzzy", "3"], "anypo toy has no option --xyzzy"),
        (["--size", "three"], "--size wants a whole number, not 'three'"),
        (["--size", "1.5"], "--size wants a whole number, not '1.5'"),
        (["--rate", "fast"], "--rate wants a number, not 'fast'"),
        (["--size"], "--size needs a value"),
        (["--size", "--json"], "--size needs a value"),
        (["--size", "1", "--size", "2"], "--size is given twice"),
        (["here", "there"], "nothing is expected where 'there' stands"),
        (["--config", "absent.yaml"], "absent.yaml does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence):
    with pytest.raises(UsageError) as caught:
        toy(*words)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_words_and_a_missing_one():
    assert parse(Wants, gather(Wants, ["a b", "c", "--strict"]), "wants") == Wants(
        ("a b", "c"), True
    )
    with pytest.raises(UsageError, match="anypo wants needs FILES"):
        parse(Wants, gather(Wants, []), "wants")


def test_yaml_gives_options_and_the_command_line_goes_before_it(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("place: there\nsize: 4\nsave-every: 20\nrate: 1e-3\njson: true\n")
    assert toy("--config", str(file)) == Toy("there", 4, "20", 1e-3, str(file), True)
    assert toy("--config", str(file), "--size", "9", "here").size == 9


def test_nested_yaml_is_dotted(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("recipe:\n  surrogate: {low: 0.1}\ntask.num_terms: 2\noperators: ['+', '*']\n")
    given = gather(Toy, ["--config", str(file)])
    assert (given["recipe.surrogate.low"], given["task.num_terms"]) == ("0.1", "2")
    assert guess(given["operators"]) == ["+", "*"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("size: [1", "is no YAML file"),
        ("- size", "must hold a mapping"),
        ("size:", "gives no value to size"),
        ("sise: 1", "no option --sise"),
        ("x: !!python/object/apply:os.getcwd []", "is no YAML file"),
    ],
)
def test_bad_yaml_is_one_sentence(tmp_path, content, sentence):
    file = tmp_path / "options.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=sentence):
        toy("--config", str(file))


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("yes", bool, True),
        ("off", bool, False),
        ("1e-3", float, 1e-3),
        ("a, b", tuple[str, ...], ("a", "b")),
        ("('step', 'batch')", tuple[str, ...], ("step", "batch")),
        ("1,2", tuple[int, ...], (1, 2)),
        ("32", int | Literal["actual", "horizon"], 32),
        ("horizon", int | Literal["actual", "horizon"], "horizon"),
    ],
)
def test_a_text_becomes_a_value_of_the_type(text, hint, value):
    got = convert(text, hint, "--x")
    assert got == value
    assert type(got) is type(value)


def test_a_text_that_fits_no_member_of_a_union_names_them_all():
    with pytest.raises(UsageError, match=r"whole number.*or --x wants one of actual, horizon"):
        convert("short", int | Literal["actual", "horizon"], "--x")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-3", -3), ("0.5", 0.5), ("true", True), ("[1, 2]", [1, 2]), ("word", "word")],
)
def test_a_value_of_unknown_type_is_guessed(text, value):
    assert guess(text) == value
    assert type(guess(text)) is type(value)


def test_every_setting_of_a_run_is_an_option_with_help():
    options = leaves(Train)
    assert set(vars(Settings())) <= set(options)
    helps = documented(Settings)
    assert set(helps) == set(vars(Settings()))
    assert helps["save_every"].endswith("between checkpoints.")


@pytest.mark.parametrize("name", METHODS)
def test_no_argument_of_a_method_hides_an_option_of_train(name):
    assert set(METHODS[name].info.parameters) & set(leaves(Train)) == set()
    own = set(leaves(with_arguments(Train, METHODS[name].info))) - set(leaves(Train))
    assert own == set(METHODS[name].info.parameters)


def test_help_for_an_argument_comes_out_of_the_docstring():
    found = described(METHODS["grpo"].info.doc)
    assert found["beta"].startswith("0.04, paper")
    assert "minibatches" not in found


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("surrogate.low", "1e-3", 1e-3),
        ("sampling.size", "4", 4),
        ("ratio.mean", "true", True),
        ("regularize.0.form", "k2", "k2"),
        ("aggregate.levels", "step, batch", ("step", "batch")),
        ("aggregate.length", "64", 64),
        ("update.epochs", "3", 3),
    ],
)
def test_an_override_is_parsed_by_the_type_of_its_field(path, text, value):
    assert typed(METHODS["grpo"](), path, text) == value


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("surogate.low", "1", "no field 'surogate'; did you mean surrogate"),
        ("surrogate.lo", "1", "no field 'lo'; did you mean low"),
        ("surrogate.low", "much", "--recipe.surrogate.low wants a number, not 'much'"),
        ("sampling.size", "0.5", "--recipe.sampling.size wants a whole number"),
        ("surrogate", "1", "is the piece Clip; set one of its fields: --recipe.surrogate.low"),
        ("regularize", "1", "--recipe.regularize.0.NAME"),
        ("regularize.1.beta", "1", "must be a number below 1"),
        ("surrogate.low.x", "1", "has no field 'x'"),
        ("surrogate.low", "-1", "low must be between 0 and 1"),
        ("sampling.size", "1", "grpo: a group baseline needs at least 2"),
    ],
)
def test_a_bad_override_is_one_sentence(path, text, sentence):
    chosen = Chosen(METHODS["grpo"], {f"recipe.{path}": text})
    with pytest.raises(UsageError) as caught:
        _ = chosen.recipe
    assert sentence in str(caught.value)
