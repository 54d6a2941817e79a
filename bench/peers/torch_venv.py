"""torch_venv.py - finds a Python that can import torch, or makes a throw-away virtual environment with one.

Nothing is installed outside the folder named, and nothing without saying so first. Where packages come from is pip's own
configuration: no index is named here.
"""
import os
import shutil
import subprocess
import sys

NEEDED_BYTES = 9 << 30  # 5.4 GiB unpacked (torch 2.15 with its CUDA libraries), and the downloads meanwhile
MARK = "torch-is-complete"


class TorchMissing(Exception):
    """No usable torch; the text says what was tried and what would help."""


def python_of(folder):
    return os.path.join(folder, "bin", "python")


def torch_version(python):
    """The version of torch that this Python imports; TorchMissing with its own last words if it cannot."""
    program = "import torch; print(torch.__version__)"
    try:
        result = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=300)
    except OSError as error:
        raise TorchMissing(f"{python} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise TorchMissing(f"{python} took more than 300 s to import torch") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise TorchMissing(f"{python} cannot import torch: {lines[-1]}")
    return result.stdout.strip()


def find_python(named, folder):
    """The Python to run the peer with: the one named by the user, this one, or the environment in folder; None if none of
    the last two has torch. TorchMissing if the named one has not."""
    if named:
        torch_version(named)
        return named
    candidates = [sys.executable]
    if os.path.exists(os.path.join(folder, MARK)):
        candidates.append(python_of(folder))
    for python in candidates:
        try:
            torch_version(python)
            return python
        except TorchMissing:
            continue
    return None


def create(folder, say):
    """Makes the environment and installs torch into it; returns its Python. A folder that an earlier try left unfinished is
    made anew; one that is something else is left alone."""
    python = python_of(folder)
    if os.path.exists(os.path.join(folder, MARK)):
        torch_version(python)
        return python
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        raise TorchMissing(f"{folder} exists and is not a virtual environment: name another folder or remove it")
    parent = os.path.dirname(os.path.abspath(folder))
    try:
        os.makedirs(parent, exist_ok=True)
        free = shutil.disk_usage(parent).free
    except OSError as error:
        raise TorchMissing(f"{parent}: {error.strerror}") from error
    if free < NEEDED_BYTES:
        raise TorchMissing(f"{parent} has {free / 2**30:.1f} GiB left, installing torch needs {NEEDED_BYTES >> 30} GiB")
    say(f"torch is not importable: installing it with pip into {folder} (a throw-away virtual environment, about 6 GB; "
        f"remove the folder to undo)")
    try:
        run_step([sys.executable, "-m", "venv", "--clear", folder], "making the virtual environment failed (Debian: apt install python3-venv)")
        run_step([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check", "torch"],
                 "pip could not install torch (no network?)")
        torch_version(python)
        with open(os.path.join(folder, MARK), "w"):
            pass
    except BaseException:  # an interrupt too: half an environment is of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return python


def run_step(command, failure):
    """Runs it with its output on stderr; TorchMissing with the last line if it fails."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise TorchMissing(f"{failure}: {command[0]}: {error.strerror}") from error
    if result.returncode != 0:
        errors = [line for line in result.stdout.splitlines() if line.strip()] or [f"exit code {result.returncode}"]
        raise TorchMissing(f"{failure}: {errors[-1].strip()}")
