"""The commented job file that people begin with: complete, and readable whatever the columns are called."""

import re
import tomllib

import pytest
from hypothesis import example, given, strategies as st

from equipoise.app.job import Job, JobError, ModelOptions, draft
from equipoise.balances.equations import format_equation

NASTY = [
    '5" pipe',
    "back`tick``s",
    "back\\slash\\n",
    "Größe [°C]",
    "a = b",
    "# no comment",
    "'",
    "ΔT̄ [K]",
    "x\ty",
    "[model]",
]


def drafted(columns, n_inputs, balances=()):
    return draft(columns, dict.fromkeys(columns, (0.0, 1.0)), columns[:n_inputs], columns[n_inputs:], balances=balances)


def test_with_inputs_and_outputs_it_is_a_job():
    text = draft(
        ["t", "feed [kg/h]", "top", "bottom"],
        {"feed [kg/h]": (0, 12.3456789)},
        inputs=["feed [kg/h]"],
        outputs=["top", "bottom"],
        balances=[("mass", "`feed [kg/h]` = top + bottom", "residual 0.1 kg/h")],
        data="runs/flows.csv",
    )
    job = Job.parse(text)
    assert (job.inputs, job.outputs, job.known) == (("feed [kg/h]",), ("top", "bottom"), ())
    assert job.balances == {"mass": "`feed [kg/h]` = top + bottom"}
    assert job.data.as_posix() == "runs/flows.csv"
    assert job.model == ModelOptions()
    assert job.constraint() is not None


def test_nasty_names_are_read_back_as_they_are():
    balances = [(f"{name} holds", format_equation({name: 1.0, NASTY[-1]: -2.5}), name) for name in NASTY[1:-1]]
    job = Job.parse(drafted(NASTY, 1, balances))
    assert job.columns == tuple(NASTY)
    assert list(job.balances.values()) == [equation for _, equation, _ in balances]
    constraint = job.constraint()
    assert constraint is not None
    assert constraint.B.tolist() == [
        [*(float(i == k) for i in range(len(NASTY) - 2)), -2.5] for k in range(len(NASTY) - 2)
    ]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name == name.strip())


@given(columns=st.lists(names, min_size=2, unique=True), words=st.text(st.characters(exclude_categories=["Cs"])))
@example(columns=["\x7f", "a\u2028b"], words="a\nb = 3\r# \x00")
def test_any_names_and_words_are_read_back(columns, words):
    equation = format_equation({columns[0]: 1.0, columns[1]: -1.0})
    text = draft(columns, dict.fromkeys(columns, words), columns[:1], columns[1:], balances=[(words, equation, words)])
    job = Job.parse(text)
    assert job.columns == tuple(columns)
    assert list(job.balances.values()) == [equation]


def test_columns_that_were_not_sorted_stand_in_a_comment_with_their_ranges():
    text = draft(["a", "b [V]", "c"], {"a": (1e-9, 2.5e6), "b [V]": "text, such as 'x'"}, outputs=["c"])
    assert re.search(r'^#   "a", +# 1e-09 to 2\.5e\+06$', text, re.MULTILINE)
    assert re.search(r"^#   \"b \[V\]\", +# text, such as 'x'$", text, re.MULTILINE)
    assert tomllib.loads(text)["inputs"] == []
    with pytest.raises(JobError, match="'inputs' must not be empty"):
        Job.parse(text)


def test_sorted_columns_stand_in_their_list_with_their_ranges():
    text = draft(["a", "b"], {"a": (1, 2), "b": (-3.25, 4)}, inputs=["b"])
    assert re.search(r'^inputs = \[.*\n    "b", +# -3\.25 to 4\n\]', text, re.MULTILINE)


def test_moving_the_lines_of_unsorted_columns_into_the_lists_makes_a_job():
    text = draft(["a", "b", "c"], {"a": (0, 1)}, balances=[("sum", "a = b + c", "0")])
    items = {name: re.search(rf'^#  ( "{name}",.*\n)', text, re.MULTILINE)[1] for name in "abc"}
    for place, chosen in {"inputs": "a", "outputs": "bc"}.items():
        text = re.sub(
            rf"(?m)^({place} = \[.*\n)", lambda match, c=chosen: match[1] + "".join(items[n] for n in c), text
        )
    job = Job.parse(text)
    assert (job.inputs, job.outputs, job.balances) == (("a",), ("b", "c"), {"sum": "a = b + c"})


def test_balances_that_the_sorted_columns_do_not_allow_are_commented_out():
    proposals = [("ok", "a = c", "0"), ("loose", "a = d", "1"), ("no output", "a = b", "2")]
    text = draft(["a", "b", "c", "d"], {}, inputs=["a"], known=["b"], outputs=["c"], balances=proposals)
    assert Job.parse(text).balances == {"ok": "a = c"}
    assert re.search(r'^# loose = "a = d" +# 1; not used: some of its columns are in none', text, re.MULTILINE)
    assert re.search(r'^# "no output" = "a = b" +# 2; not used: it has no output', text, re.MULTILINE)


def test_names_of_balances_that_occur_twice_or_are_blank_are_told_apart():
    proposals = [("e", "a = b", "0"), ("e", "a = c", "1"), (" ", "b = c", "2"), ("e 2", "a = 2*c", "3")]
    job = Job.parse(drafted(["a", "b", "c"], 1, proposals))
    assert list(job.balances.values()) == ["a = b", "a = c", "b = c", "a = 2*c"]


def test_every_option_is_listed_with_its_default_and_its_help():
    text = draft(["a", "b"], {}, ["a"], ["b"])
    message = text.split("[model]\n")[1]
    for name, field in ModelOptions.model_fields.items():
        assert re.search(rf"^# {name} = .+ # {re.escape(field.description)}$", message, re.MULTILINE)
    uncommented = re.sub("(?m)^# ", "", message)
    assert ModelOptions(**tomllib.loads(uncommented)) == ModelOptions(device="cuda", batch_size=128, validation_draws=8)


def test_sensors_and_tolerances_can_be_used_by_removing_the_comment_signs():
    text = drafted(["a", "b [V]", "c"], 1, [("sum", "a = `b [V]` + c", "0")])
    text = re.sub(r"(?m)^# (\[sensors\]|\[tolerances\]|.* = \"learn\")$", r"\1", text)
    job = Job.parse(text)
    assert job.sensors == {"b [V]": "learn", "c": "learn"}
    assert job.tolerances == {"sum": "learn"}


def test_a_column_that_the_table_lacks_is_named_with_the_closest():
    with pytest.raises(JobError, match=r"outputs must name columns of the table, but got 'volt'\. Did you mean 'Volt"):
        draft(["Voltage [V]"], {}, outputs=["volt"])
