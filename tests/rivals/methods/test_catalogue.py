"""The two lists, their pairs, and why some make no sense."""

import subprocess
import sys

import pytest

from equipoise.rivals.methods.catalogue import (
    DEFAULT,
    IMPOSITIONS,
    INFERENCES,
    OURS,
    Method,
    MethodError,
    methods_named,
    sensible_pairs,
)


def test_every_idea_of_either_list_is_in_the_default_comparison():
    methods = methods_named(["default"])
    assert {method.inference for method in methods} == set(INFERENCES)
    assert {method.imposition for method in methods} == set(IMPOSITIONS)
    assert OURS in DEFAULT


def test_all_pairs_make_sense_but_those_with_an_objection():
    untied = {"none", "posthoc", "posthoc-scalar"}
    separate = {"laplace": untied, "boosting": untied, "gp": {*untied, "fixed", "learned"}}
    refused = {f"{one}+{name}" for one, allowed in separate.items() for name in IMPOSITIONS if name not in allowed}
    refused.add("vi+qp")
    everything = {f"{one}+{other}" for one in INFERENCES for other in IMPOSITIONS}
    assert {pair.name for pair in sensible_pairs()} == everything - refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vi+qp", "solved for every row, weight draw and step.*'vi'.*'projection', the same map in closed form"),
        ("laplace+projection", "heads that were trained on their own.*'projection', which ties outputs.*'posthoc'"),
        ("gp+penalty", "fitted to each output on its own.*'penalty', which ties.*'none', .*'fixed' or 'learned'"),
        ("boosting+learned", "grown for each output on its own.*Use 'none', 'posthoc' or 'posthoc-scalar'"),
        ("vi+projecton", "impose balances, but got 'projecton'. Did you mean 'projection'"),
        ("bayes+none", "infer weights, but got 'bayes'. Choose one of: vi, deterministic"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(name, message):
    with pytest.raises(MethodError, match=message):
        Method.named(name)


def test_names_are_read_with_blanks_and_without_an_imposition():
    assert Method.named(" ensemble + learned ") == Method("ensemble", "learned")
    assert Method.named("dropout") == Method("dropout", "none")


def test_a_list_of_methods_has_each_once_and_groups_are_spelled_out():
    assert methods_named(["vi", "vi+none", "laplace"]) == (Method("vi", "none"), Method("laplace", "none"))
    assert len(methods_named(["all", "default"])) == len(sensible_pairs())


def test_the_lists_are_read_without_torch():
    code = "import sys, equipoise.rivals.methods.catalogue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
