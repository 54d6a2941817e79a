"""summary.py - statistics, comparison and table of the peer comparison; pure functions.

A round holds one block of steps of each peer, next to each other in time. So each round gives one ratio that the drift
of the machine hardly touches; the result is the median of the rounds' ratios, and its interval needs no assumption
about the noise: see ratio_interval.
"""
import math
import statistics

import cells


def quantile(values, q):
    """Type 7 of Hyndman and Fan 1996 (the default of R and numpy), as in bench/stats.c."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * q
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def spread(values):
    return {"median": statistics.median(values), "q1": quantile(values, 0.25), "q3": quantile(values, 0.75), "min": min(values)}


def ratio_interval(ratios, confidence=0.95):
    """The interval between the k-th smallest and the k-th largest value, k as large as the confidence allows.

    It holds the true median unless fewer than k of n values fall on one side of it, and each side is a fair coin:
    coverage = 1 - 2 P(Binomial(n, 1/2) < k)  (the sign test; David and Nagaraja 2003, section 7.1).
    For few values even the whole range covers less than the confidence; the coverage returned says how much.
    Returns (low, high, coverage).
    """
    ordered, n = sorted(ratios), len(ratios)

    def coverage(k):
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    k = 1
    while k < n / 2 and coverage(k + 1) >= confidence:
        k += 1
    return ordered[k - 1], ordered[n - k], coverage(k)


def compare(rounds):
    """rounds: [{"torch": [seconds...], "batchmark": [seconds...]}, ...] -> what the table and the record show.

    ratio = PyTorch's median step / batchmark's, by round: above 1, batchmark is faster.
    """
    ratios = [statistics.median(r["torch"]) / statistics.median(r["batchmark"]) for r in rounds]
    low, high, coverage = ratio_interval(ratios)
    return {
        "torch_step_seconds": spread([s for r in rounds for s in r["torch"]]),
        "batchmark_step_seconds": spread([s for r in rounds for s in r["batchmark"]]),
        "round_ratios": ratios,
        "ratio": {"median": statistics.median(ratios), "low": low, "high": high, "coverage": coverage},
    }


# ---- table ----

LOAD_DISTURBS = 0.2  # cores busy with something else from which a cell deserves doubt, as in bench/cell.c

HEADINGS = ("net", "size", "batch", "amp", "PyTorch ms", "batchmark ms", "speed-up", "PyTorch samples/s", "batchmark samples/s",
            "PyTorch peak", "batchmark peak", "peak ratio", "others' load")


def milliseconds(seconds):
    """The median with the quartiles, all with as many decimals as three digits of the median need."""
    scaled = [1000 * seconds[key] for key in ("median", "q1", "q3")]
    decimals = max(0, 2 - math.floor(math.log10(scaled[0])))
    return "{0:.{d}f} ({1:.{d}f}-{2:.{d}f})".format(*scaled, d=decimals)


def significant(value):
    """Three digits, without an exponent."""
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"


def gibibytes(size):
    return "unknown" if size is None else f"{size / 2**30:.2f} GiB"


def table_row(cell):
    axes = [cells.net_name(cell["net"], cell["head"]), str(cell["size"]), str(cell["batch"]), cell["amp"]]
    if cell["status"] != "ok":
        reason = cell["reason"].replace("|", "\\|")
        return axes + [f"{cell['status']}: {reason}"] + [""] * (len(HEADINGS) - len(axes) - 1)
    torch, ours, ratio = cell["torch_step_seconds"], cell["batchmark_step_seconds"], cell["ratio"]
    peaks = cell["peak_bytes"]
    known = peaks["torch"] is not None and peaks["batchmark"] is not None
    load = cell["load"]["median"]
    return axes + [
        milliseconds(torch) + (" compiled" if cell["compile"] else ""), milliseconds(ours),
        f"**{ratio['median']:.2f} x** ({ratio['low']:.2f}-{ratio['high']:.2f})",
        significant(cell["batch"] / torch["median"]), significant(cell["batch"] / ours["median"]),
        gibibytes(peaks["torch"]), gibibytes(peaks["batchmark"]),
        f"{peaks['batchmark'] / peaks['torch']:.2f} x" if known else "unknown",
        "unknown" if load is None else f"{load:.2f}{', disturbed' if load > LOAD_DISTURBS else ''}",
    ]


def markdown_table(results):
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += ["| " + " | ".join(table_row(cell)) + " |" for cell in results]
    return "\n".join(lines) + "\n"


def legend(rounds, environment, device="cpu"):
    """What the columns mean and what they were measured on, in Markdown."""
    coverage = ratio_interval([1.0] * rounds)[2]
    turns = f"the median of {rounds} rounds in which both ran next to each other, with its {100 * coverage:.0f} % interval"
    if rounds == 1:
        turns = "from one round, so without an interval"
    torch, ours = environment["torch"], environment["batchmark"]
    machine = f"{environment['threads']} threads, {environment['cpu'] or 'unknown CPU'}"
    peaks = "resident memory of the whole process"
    if device == "cuda":
        machine = torch.get("gpu") or ours.get("device", "unknown GPU")
        peaks = "device memory of tensors and workspaces, without what the allocator or the context held besides"
    return (
        f"One training step: PyTorch {torch.get('version', 'unknown')} "
        f"against batchmark ({ours.get('library', 'unknown library')}), {machine}.\n"
        f"Size is pixels, or tokens of a sequence; compiled: PyTorch by torch.compile.\n"
        f"Times are medians with quartiles. Speed-up is PyTorch's step / batchmark's: {turns}. "
        f"Peaks are {peaks}; peak ratio is batchmark / PyTorch. "
        f"Others' load is the median number of cores that other processes kept busy; from {LOAD_DISTURBS} on a cell is disturbed and its figures deserve doubt.\n"
    )
