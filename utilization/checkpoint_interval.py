"""How often to save: failures, saves and restarts against the time that survives.

Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974, doi:10.1145/361147.361115.
Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006,
doi:10.1016/j.future.2004.11.016.

Failures come at random at a constant rate (a Poisson process), also during saves and restarts. An interval is the
seconds of training between two saves, a save the seconds that training stands still for one, a restart the seconds
from a failure to the first new step. Everything is in seconds.
"""

import math


def mean_time_between_failures(interruptions: int, seconds: float) -> float:
    """Observed mean seconds between interruptions, from their number in `seconds` of wall time.

    Llama 3 405B: 466 in 54 days on 16,384 GPUs (arXiv:2407.21783, section 3.3.4), 2.78 hours.

    Raises:
        ValueError: there was none, so the mean is unknown, or the time is not positive.
    """
    if interruptions < 1 or not seconds > 0:
        raise ValueError(f"{interruptions} interruptions in {seconds} s tell no mean time between them")
    return seconds / interruptions


def scaled_to_devices(mtbf: float, devices: int, to_devices: int) -> float:
    """Mean time between failures of `to_devices` devices from that of `devices`: each fails on its own, all stop."""
    return mtbf * devices / to_devices


def young_interval(save: float, mtbf: float) -> float:
    """sqrt(2 save mtbf), Young 1974: the optimum to first order, for saves much shorter than `mtbf`."""
    return math.sqrt(2 * save * mtbf)


def daly_interval(save: float, mtbf: float) -> float:
    """Daly 2006, equation 37: the optimum to higher order; `mtbf` itself when saves take longer than 2 `mtbf`."""
    if save >= 2 * mtbf:
        return mtbf
    x = math.sqrt(save / (2 * mtbf))
    return math.sqrt(2 * save * mtbf) * (1 + x / 3 + x**2 / 9) - save


def optimum_interval(save: float, mtbf: float) -> float:
    """The interval at which `goodput` is greatest, whatever a restart takes; 0 if saves cost nothing.

    The derivative of `goodput` is zero where (1 - interval / mtbf) exp((interval + save) / mtbf) = 1; the left side
    falls from above 1 at 0 to 0 at `mtbf`, so the one solution is found by bisection.
    """
    low, high = 0.0, mtbf
    while high - low > 1e-12 * mtbf:
        middle = (low + high) / 2
        if math.log1p(-middle / mtbf) + (middle + save) / mtbf > 0:
            low = middle
        else:
            high = middle
    return low if save else 0.0


def goodput(interval: float, *, save: float, restart: float, mtbf: float) -> float:
    """Expected share of the wall time that goes into steps that survive, 0 to 1 (Daly 2006, equation 20).

    Let s = interval + save, and let E be the expected time until s seconds have passed without a failure. A restart
    is such a stretch of its own: R* = mtbf (exp(restart / mtbf) - 1) until one succeeds. A first failure at t < s costs
    t + R* and begins anew, so
        E = integral_0^s (t + R* + E) exp(-t / mtbf) dt / mtbf + s exp(-s / mtbf) = (mtbf + R*) (exp(s / mtbf) - 1),
    and interval / E survives.

    Raises:
        ValueError: the interval or the mean time is not positive, or another time is negative.
    """
    if not (interval > 0 and mtbf > 0 and save >= 0 and restart >= 0):
        raise ValueError(
            f"interval={interval} and mtbf={mtbf} must be positive, save={save}, restart={restart} not less"
        )
    stretch = (interval + save) / mtbf
    return interval / mtbf * math.exp(-restart / mtbf - stretch) / -math.expm1(-stretch)


def best_goodput(*, save: float, restart: float, mtbf: float) -> float:
    """`goodput` at the optimum interval: the most that any choice of it can reach."""
    if save == 0:
        return math.exp(-restart / mtbf)  # the limit of ever shorter intervals
    return goodput(optimum_interval(save, mtbf), save=save, restart=restart, mtbf=mtbf)


def expected_failures(useful: float, *, goodput: float, mtbf: float) -> float:
    """Failures to expect until `useful` seconds of steps have survived: they also strike what is lost."""
    return useful / goodput / mtbf
