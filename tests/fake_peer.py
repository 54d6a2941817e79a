"""fake_peer.py - a peer for test_peers.py that speaks the line protocol, or breaks it in the way its first word names.

usage: fake_peer.py MODE [what the driver adds]; with -c among the rest it plays a Python that has torch.
"""
import json
import os
import signal
import sys
import time


def main():
    mode, rest = sys.argv[1], sys.argv[2:]
    if "-c" in rest:  # the driver asks for torch's version
        if mode == "no-torch":
            sys.exit("ModuleNotFoundError: No module named 'torch'")
        print("9.9.9")
        return
    if mode == "hangs-in-bf16":
        mode = "hangs" if "bf16" in rest else "good"
    step = 2**-9 if mode == "slow" else 2**-10
    if mode == "unsupported":
        reply({"error": "bf16 is not timed here: no fast bf16", "code": "unsupported"})
        sys.exit(1)
    if mode == "dies-at-start":
        sys.exit("first line\nout of luck")
    if mode == "hangs-at-start":
        time.sleep(60)
    if mode == "no-greeting":
        reply({"seconds": []})
    reply({"ready": True, "version": "9.9.9", "library": "fake 1.0"})
    for line in sys.stdin:
        if line == "quit\n" and mode != "does-not-quit":
            return
        answer(mode, line.split(), step)


def answer(mode, words, step):
    if words[0] == "peak":
        reply({"peak_bytes": None if mode == "no-peak" else int(step * 2**40)})
        return
    if words[0] != "run":
        return
    count = int(words[1])
    if mode == "garbage":
        print("Segmentation fault | sorry", flush=True)
    elif mode == "binary":
        sys.stdout.buffer.write(b"\xff\xfe\n")
        sys.stdout.buffer.flush()
    elif mode == "list":
        reply([1, 2])
    elif mode == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    elif mode == "dies":
        sys.exit(7)
    elif mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "hangs":
        time.sleep(60)
    elif mode == "too-few":
        reply({"seconds": [step] * (count - 1), "loss": 1.0})
    elif mode == "zero-time":
        reply({"seconds": [0.0] * count, "loss": 1.0})
    elif mode == "nan-loss":
        print('{"seconds": ' + str([step] * count) + ', "loss": NaN}', flush=True)
    elif mode == "error":
        reply({"error": "the loss is not finite", "code": "numeric"})
    elif mode == "in-pieces":
        text = json.dumps({"seconds": [step] * count, "loss": 1.0}) + "\n"
        for part in (text[:5], text[5:9], text[9:]):
            sys.stdout.write(part)
            sys.stdout.flush()
            time.sleep(0.02)
    else:
        reply({"seconds": [step] * count, "loss": 6.9})


def reply(message):
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
