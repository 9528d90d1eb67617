"""What the paper claims: each with a name, a place in the paper and a judge."""

from handmade_results import example

from studies.battery.claims import CLAIMS
from studies.battery.published import TABLES


def test_every_claim_has_a_name_of_its_own_and_a_known_place():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.label for claim in CLAIMS} <= set(TABLES)


def test_no_two_claims_are_judged_by_the_same_sentence():
    assert len({claim.judge([example()]).why for claim in CLAIMS}) == len(CLAIMS)
