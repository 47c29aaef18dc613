"""Student's t distribution, for tests and intervals from few values.

Formulas: NIST Digital Library of Mathematical Functions, 8.17 (incomplete beta function;
8.17.22 is the continued fraction, 8.17.4 the symmetry).
"""

import math

_TERMS = 300
_EPSILON = 1e-14
#: Replaces a zero in a denominator (Lentz's method).
_TINY = 1e-300


def two_sided_p(t: float, df: float) -> float:
    """Return the probability of a value at least as far from 0 as ``t``.

    Args:
        t: the statistic; may be infinite.
        df: degrees of freedom, above 0 and not necessarily whole.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def critical(level: float, df: float) -> float:
    """Return the value whose absolute size is exceeded with the probability ``1 - level``.

    Args:
        level: of a two-sided interval, such as 0.95.
        df: degrees of freedom, above 0.
    """
    low, high = 0.0, 2.0
    while two_sided_p(high, df) > 1 - level:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        if two_sided_p(middle, df) > 1 - level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_front) / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)) of DLMF 8.17.22, by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for i in range(1, _TERMS):
        m, odd = divmod(i, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        value *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return value
