"""Predictions given readings, one draw and one row at a time with dense matrices: what the library must agree with."""

from dataclasses import dataclass

import handmade
import numpy as np
import scipy.stats


@dataclass(frozen=True)
class Answer:
    """What is known of one row."""

    mean: np.ndarray
    cov: np.ndarray
    effective: float
    gaussian: bool


def conditioned(mean, cov, y, w):
    """Bayes' rule for `z ~ N(mean, cov)` and readings `y = z + e` of some of z: mean, covariance, log evidence."""
    seen = ~np.isnan(y) & np.isfinite(w)
    S = cov[np.ix_(seen, seen)] + np.diag(w[seen])
    gain = cov[:, seen] @ np.linalg.inv(S)
    residual = y[seen] - mean[seen]
    log_evidence = scipy.stats.multivariate_normal.logpdf(residual, np.zeros(len(residual)), S) if seen.any() else 0.0
    return mean + gain @ residual, cov - gain @ S @ gain.T, log_evidence


def matched(line):
    """Mean and covariance of the draws of one row before any reading, and their mean sensor variances."""
    means = np.array([c.mean for c in line])
    return means.mean(0), np.mean([c.cov for c in line], 0) + np.cov(means.T, ddof=0), np.mean([c.w for c in line], 0)


def row_answer(line, y, w, least):
    """One row: draws weighted by their evidence, or the matched Gaussian where fewer than `least` count.

    Args:
        line: Components of all draws.
        y, w: Readings and their variances; None for the draws' own.
        least: Effective draws that there must be.
    """
    parts = [conditioned(c.mean, c.cov, y, c.w if w is None else w) for c in line]
    logs = np.array([log for _, _, log in parts])
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    effective = 1.0 / (weight**2).sum()
    if effective < least:
        mean, cov, own = matched(line)
        mean, cov, _ = conditioned(mean, cov, y, own if w is None else w)
        return Answer(mean, cov, effective, True)
    means = np.array([m for m, _, _ in parts])
    mean = weight @ means
    apart = means - mean
    cov = np.einsum("d,dij->ij", weight, np.array([c for _, c, _ in parts]))
    return Answer(mean, cov + np.einsum("d,di,dj->ij", weight, apart, apart), effective, False)


def answers(p, Y, w=None, least=20, parts=None):
    """Every row of a predictive, in the user's units; `w` is `(n_y,)`, or None for the model's sensors.

    Args:
        parts: `handmade.components(p)`, which take longest, if they are at hand.
    """
    parts = handmade.components(p) if parts is None else parts
    return [row_answer([line[i] for line in parts], Y[i], w, least) for i in range(len(Y))]
