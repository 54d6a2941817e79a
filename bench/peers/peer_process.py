"""peer_process.py - one peer as a child process that speaks the line protocol of resnet50.py and `batchmark serve`.

Everything a peer can do wrong (not start, die, print something else, hang) becomes a PeerError with one line of text;
nothing here waits without a limit.
"""
import json
import math
import os
import selectors
import signal
import subprocess
import tempfile
import time

REPLY_BYTES_MAX = 8 << 20
QUIT_SECONDS = 10


class PeerError(Exception):
    """A peer failed; the text says which and how."""


class PeerUnsupported(PeerError):
    """The peer says that this cell cannot run on this machine: to be skipped, not a failure."""


class Peer:
    """Started by the constructor. close() asks it to quit, kill() does not ask; leaving the with block does one or the other,
    depending on whether there was an error.

    name         for messages
    command      list of words
    environment  added to this process's own
    timeout      seconds to wait for any one reply
    """

    def __init__(self, name, command, environment, timeout):
        self.name, self.timeout, self.hello = name, timeout, None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()
        try:
            # A session of its own: Ctrl-C reaches the driver alone, and what the peer starts ends with it.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                             bufsize=0, env={**os.environ, **environment}, start_new_session=True)
        except OSError as error:
            self._errors.close()
            raise PeerError(f"{name} cannot be started: {command[0]}: {error.strerror}") from error
        os.set_blocking(self._process.stdout.fileno(), False)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            self.kill()
        else:
            self.close()

    # ---- commands ----

    def wait_ready(self):
        """Waits for the greeting, stores it in hello and returns it."""
        message = self._receive()
        if message.get("ready") is not True:
            raise PeerError(f"{self.name} answered {_shortened(json.dumps(message))} instead of its greeting")
        self.hello = message
        return message

    def run(self, steps):
        """The seconds of each of so many steps."""
        message = self._ask(f"run {steps}")
        seconds, loss = message.get("seconds"), message.get("loss")
        if not isinstance(seconds, list) or len(seconds) != steps or not all(_is_positive(s) for s in seconds):
            raise PeerError(f"{self.name} answered {_shortened(json.dumps(message))} instead of the seconds of {steps} steps")
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            raise PeerError(f"{self.name} reports a loss of {loss}: it must be a finite number")
        return seconds

    def peak_bytes(self):
        """Highest resident memory so far; None if the peer does not know."""
        return self._ask("peak").get("peak_bytes")

    def cpu_seconds(self):
        """CPU time of the process, its threads and the children it has waited for; None if unknown."""
        try:
            with open(f"/proc/{self._process.pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            return None
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """Asks it to quit, and ends it if it does not."""
        try:
            self._process.stdin.write(b"quit\n")
            self._process.wait(QUIT_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session, made above
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            stream.close()

    # ---- lines ----

    def _ask(self, line):
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError:
            pass  # it is gone: the reply says how
        return self._receive()

    def _receive(self):
        """One reply as a dictionary."""
        line = self._read_line(time.monotonic() + self.timeout)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise PeerError(f"{self.name} answered {_shortened(line.decode(errors='replace'))} instead of a JSON object")
        if "error" in message:
            kind = PeerUnsupported if message.get("code") == "unsupported" else PeerError
            raise kind(f"{self.name}: {message['error']}")
        return message

    def _read_line(self, deadline):
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if len(self._buffer) > REPLY_BYTES_MAX:
                    raise PeerError(f"{self.name} answered a line of more than {REPLY_BYTES_MAX >> 20} MiB")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerError(f"{self.name} did not answer within {self.timeout:g} s")
                if not selector.select(left):
                    continue
                data = self._process.stdout.read(1 << 16)
                if data is None:
                    continue
                if not data:
                    raise PeerError(f"{self.name} {self._how_it_ended()}")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _how_it_ended(self):
        try:
            code = self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        text = f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            text = "was killed (signal 9), perhaps by the kernel for lack of memory"
        elif code < 0:
            text = f"was ended by signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{text}: {_shortened(lines[-1], 200)}" if lines else text


def _is_positive(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _shortened(text, length=60):
    text = text.strip()
    return f"'{text[:length]}...'" if len(text) > length else f"'{text}'"
