"""cells.py - which cells the peer comparison knows: their names on the command line, the ones it runs by default, and how
PyTorch runs each of them fastest."""
import collections

# net: as --net of both; head: of bert, None for others; size: pixels, or tokens of a sequence
Cell = collections.namedtuple("Cell", "net head size batch amp")

# The names of nets in cells, and what each stands for.
NAMES = {"resnet50": [("resnet50", None)], "unet": [("unet", None)], "bert": [("bert", "all"), ("bert", "masked")],
         "bert-all": [("bert", "all")], "bert-masked": [("bert", "masked")]}
NETS = ("resnet50", "unet", "bert")
AMPS = ("off", "bf16")  # of a cell that names none
KNOWN_AMPS = ("off", "tf32", "bf16", "fp16")

# A quarter of an hour on two cores, and every cell that has a goal in bench/targets.py: three quarters.
DEFAULT = {"resnet50": "224/2,224/8,64/32", "unet": "unet/256/1", "bert": "bert/128/1,bert-masked/128/8"}
FULL = {"resnet50": "224/1,224/2,224/8,64/8,64/32", "unet": "unet/256/1,unet/256/2,unet/256/4",
        "bert": "bert/128/1,bert/128/2,bert/128/4,bert/128/8"}


# On a GPU: batch 1, where launching is what takes the time, and a batch that fills it.
GPU = {"resnet50": "resnet50/224/256/fp16,resnet50/224/1/fp16", "unet": "unet/572/8/fp16,unet/572/1/fp16",
       "bert": "bert-masked/128/128/bf16,bert-masked/128/1/bf16"}


class CellError(Exception):
    """Not a cell: one line."""


def parse(text):
    """"224/8/bf16,unet/256/2" -> [Cell("resnet50", None, 224, 8, "bf16"), Cell("unet", None, 256, 2, "off"), ... "bf16")]."""
    cells = []
    for item in text.split(","):
        for cell in parse_one(item.strip()):
            if cell in cells:
                raise CellError(f"{name(cell)} stands there twice")
            cells.append(cell)
    return cells


def parse_one(item):
    words = item.split("/")
    net = words.pop(0) if words[0] in NAMES else "resnet50"
    numbers = [int(w) if w.isascii() and w.isdigit() else 0 for w in words[:2]]
    if len(words) not in (2, 3) or not 8 <= numbers[0] <= 4096 or not 1 <= numbers[-1] <= 1 << 20:
        raise CellError(f"'{item}' must be NET/SIZE/BATCH or NET/SIZE/BATCH/AMP, such as unet/256/2/bf16; NET is one of "
                        f"{', '.join(NAMES)} (without it resnet50)")
    if len(words) == 3 and words[2] not in KNOWN_AMPS:
        raise CellError(f"'{item}': amp must be one of {', '.join(KNOWN_AMPS)}")
    return [Cell(*kind, *numbers, amp) for kind in NAMES[net] for amp in (words[2:] or AMPS)]


def listed(nets, lists):
    """The cells of these nets, separated by commas: "resnet50,bert" of DEFAULT or FULL."""
    unknown = [net for net in nets if net not in NETS]
    if unknown or len(set(nets)) != len(nets):
        raise CellError(f"'{','.join(nets)}' must name some of {', '.join(NETS)}, each once")
    return parse(",".join(lists[net] for net in nets))


def net_name(net, head):
    return f"{net}-{head}" if head else net


def name(cell):
    """As parse takes it."""
    return f"{net_name(cell.net, cell.head)}/{cell.size}/{cell.batch}/{cell.amp}"


def options(cell):
    """The options that both programs take."""
    words = ["--net", cell.net, "--size", str(cell.size), "--batch", str(cell.batch), "--amp", cell.amp]
    return words + (["--head", cell.head] if cell.head else [])


# Where torch.compile makes PyTorch's step shorter, found by letting it take turns with eager mode. It fuses batch norm
# and ReLU, which bf16 leaves as a large part of a step. For BERT it is slower: eager mode's fused kernels have done it all.
COMPILED = {("unet", "bf16")}


def faster_compiled(cell):
    return (cell.net, cell.amp) in COMPILED
