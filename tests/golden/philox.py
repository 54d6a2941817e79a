"""philox.py - the counter-based generator of kernels/base.h (Philox-4x32-10, Salmon et al. 2011), written again in numpy, so
that the golden files need to hold neither weights nor data: both sides draw them."""
import numpy as np


def words(seed, stream, count):
    """rng_block for counters 0..count-1: uint32 (count, 4)."""
    mask = np.uint64(0xFFFFFFFF)
    counter = np.arange(count, dtype=np.uint64)
    c = [counter & mask, counter >> np.uint64(32), np.full(count, stream & 0xFFFFFFFF, np.uint64),
         np.full(count, stream >> 32, np.uint64)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).astype(np.uint32)


def integers(seed, stream, shape):
    """The first word of each block, as int64 of that shape."""
    return words(seed, stream, int(np.prod(shape)))[:, 0].astype(np.int64).reshape(shape)


def normal(seed, stream, count):
    """rng_normal for counters 0..count-1, rounded to float32."""
    w = words(seed, stream, count).astype(np.float64)
    return (np.sqrt(-2 * np.log((w[:, 0] + 0.5) * 2.0**-32)) * np.cos(6.283185307179586 * (w[:, 1] * 2.0**-32))).astype(np.float32)


def uniform(seed, stream, count):
    """2 rng_uniform - 1 of the first word, float32."""
    return (2 * (words(seed, stream, count)[:, 0] >> 8).astype(np.float64) * 2.0**-24 - 1).astype(np.float32)
