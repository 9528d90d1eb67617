"""Seeds derived from keys."""

from equipoise.network.seeds import derived_seed


def test_derived_seeds_differ_by_every_part_of_their_key():
    seeds = [derived_seed(a, b, c) for a in range(6) for b in range(6) for c in range(6)]
    assert len(set(seeds)) == len(seeds)
