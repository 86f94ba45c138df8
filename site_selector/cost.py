"""The cost of running a job at a site (thesis §4.3, Algorithm 4, Table 3).

    T_t = T_c + T_n,   T_c = T_q + S_c / (N · Γ_c),   T_n = S_t / min(Γ_t, Γ_a)

    T_t   time until the results are there        s
    T_q   wait in the site's queue                s; infinite where a site has no resources now
    S_c   data to be computed                     bytes
    N     workers at work on it                   count (a share of one where jobs take turns)
    Γ_c   what one worker computes                bytes/s
    S_t   data that must still move               bytes
    Γ_t   what TCP reaches after tuning           bits/s
    Γ_a   throughput available on the path        bits/s

Everything is pure and works on numbers and on numpy arrays that broadcast against each other,
usually (jobs, sites). Sizes are in bytes and network rates in bits per second; the factor eight is
applied here and nowhere else in the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from network_provisioner.base.units import BITS_PER_BYTE

Array = NDArray[np.float64]

# Mathis, Semke, Mahdavi, Ott 1997: rate = (MSS / RTT) · C / sqrt(p), C = sqrt(3/2) for a receiver
# that acknowledges every segment.
MATHIS_C = 1.5**0.5
MSS_BYTES = 1460.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The three terms and their sum, in seconds, all of one shape.

    ``compute`` is S_c/(N·Γ_c) alone; the thesis's T_c is ``queue + compute``.
    """

    queue: Array
    compute: Array
    network: Array
    total: Array


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def _ratio(amount: ArrayLike, rate: ArrayLike) -> Array:
    """amount / rate, with nothing to do taking no time and a rate of zero taking forever."""
    top, bottom = np.broadcast_arrays(_array(amount), _array(rate))
    out = np.where(top > 0, np.inf, 0.0)
    np.divide(top, bottom, out=out, where=(bottom > 0) & (top > 0))
    return out


def compute_time(s_c_bytes: ArrayLike, workers: ArrayLike, gamma_c: ArrayLike) -> Array:
    """S_c / (N · Γ_c) in seconds. Infinite where there is work but N or Γ_c is zero."""
    return _ratio(s_c_bytes, _array(workers) * _array(gamma_c))


def network_time(s_t_bytes: ArrayLike, gamma_t_bps: ArrayLike, gamma_a_bps: ArrayLike) -> Array:
    """S_t / min(Γ_t, Γ_a) in seconds. Zero where nothing must move."""
    slower = np.minimum(_array(gamma_t_bps), _array(gamma_a_bps))
    return _ratio(_array(s_t_bytes) * BITS_PER_BYTE, slower)


def tuned_throughput(
    link_bps: ArrayLike,
    rtt_s: ArrayLike,
    streams: ArrayLike,
    buffer_bytes: ArrayLike,
    loss: ArrayLike = 0.0,
) -> Array:
    """Γ_t in bits per second: min(link, streams·buffer/RTT, streams·Mathis(loss)).

    A window of ``buffer_bytes`` is all that one stream has under way in a round trip; loss bounds
    a stream as Mathis et al. (1997) have it. Without a round-trip time neither binds; without loss
    the last does not.
    """
    rtt, lost = _array(rtt_s), _array(loss)
    window = _ratio(_array(streams) * _array(buffer_bytes) * BITS_PER_BYTE, rtt)
    root = np.sqrt(np.maximum(lost, 0.0)) * rtt
    mathis = _ratio(_array(streams) * MSS_BYTES * BITS_PER_BYTE * MATHIS_C, root)
    return np.minimum(_array(link_bps), np.minimum(window, mathis))


def total_time(
    queue_s: ArrayLike,
    s_c_bytes: ArrayLike,
    workers: ArrayLike,
    gamma_c: ArrayLike,
    s_t_bytes: ArrayLike,
    gamma_t_bps: ArrayLike,
    gamma_a_bps: ArrayLike,
) -> Terms:
    """Algorithm 4: all terms of T_t, broadcast to one shape.

    ``queue_s`` is taken as infinite where a site has no worker (N = 0).
    """
    n = _array(workers)
    queue = np.where(n > 0, _array(queue_s), np.inf)
    compute = compute_time(s_c_bytes, n, gamma_c)
    network = network_time(s_t_bytes, gamma_t_bps, gamma_a_bps)
    queue, compute, network = np.broadcast_arrays(queue, compute, network)
    return Terms(queue, compute, network, queue + compute + network)
