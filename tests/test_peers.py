"""test_peers.py - the peer comparison without torch: statistics, table, the line protocol and all the ways a peer can break
it, and the driver from end to end with fake peers. With a path to batchmark as first word, its `serve` too.
"""
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

TESTS = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(os.path.dirname(TESTS), "bench", "peers")
sys.path.insert(0, PEERS)
sys.dont_write_bytecode = True

import cells  # noqa: E402
import peers  # noqa: E402
import summary  # noqa: E402
import torch_venv  # noqa: E402
from peer_process import Peer, PeerError, PeerUnsupported  # noqa: E402

FAKE = os.path.join(TESTS, "fake_peer.py")
BATCHMARK = None


class Statistics(unittest.TestCase):
    def test_quantiles_interpolate_like_numpy(self):
        self.assertEqual(summary.quantile([4, 1, 3, 2], 0.25), 1.75)
        self.assertEqual(summary.quantile([4, 1, 3, 2], 0.75), 3.25)
        self.assertEqual(summary.quantile([5], 0.75), 5)

    def test_interval_of_six_is_the_whole_range(self):
        low, high, coverage = summary.ratio_interval([1.3, 1.1, 1.2, 1.6, 1.4, 1.5])
        self.assertEqual((low, high), (1.1, 1.6))
        self.assertAlmostEqual(coverage, 1 - 2 / 64)

    def test_interval_of_nine_leaves_out_one_at_each_end(self):
        low, high, coverage = summary.ratio_interval(list(range(9)))
        self.assertEqual((low, high), (1, 7))  # table of the sign test: n = 9, 96.1 %
        self.assertAlmostEqual(coverage, 1 - 2 * 10 / 512)

    def test_few_rounds_say_how_little_they_cover(self):
        self.assertEqual(summary.ratio_interval([2.0]), (2.0, 2.0, 0.0))
        self.assertEqual(summary.ratio_interval([1.0, 2.0]), (1.0, 2.0, 0.5))

    def test_ratio_pairs_the_blocks_of_a_round(self):
        # The machine slows down by ten from round to round; every round still says 1.5 or 2.
        rounds = [{"torch": [3.0 * f], "batchmark": [2.0 * f]} for f in (1, 10, 100)] + [{"torch": [4.0], "batchmark": [2.0]}]
        result = summary.compare(rounds)
        self.assertEqual(result["round_ratios"], [1.5, 1.5, 1.5, 2.0])
        self.assertEqual(result["ratio"]["median"], 1.5)
        self.assertEqual((result["ratio"]["low"], result["ratio"]["high"]), (1.5, 2.0))

    def test_one_disturbed_step_does_not_move_the_ratio(self):
        rounds = [{"torch": [2.0, 2.0, 99.0], "batchmark": [1.0, 1.0, 1.0]}] * 6
        self.assertEqual(summary.compare(rounds)["ratio"]["median"], 2.0)


def finished_cell(**changes):
    cell = {"net": "resnet50", "head": None, "size": 224, "batch": 8, "amp": "bf16", "compile": False, "status": "ok", "reason": None, "load": {"median": 0.031, "max": 1},
            "peak_bytes": {"torch": 2 << 30, "batchmark": 1 << 30},
            **summary.compare([{"torch": [0.75], "batchmark": [0.5]}] * 6)}
    return {**cell, **changes}


class Table(unittest.TestCase):
    def test_a_finished_cell(self):
        self.assertEqual(summary.table_row(finished_cell()),
                         ["resnet50", "224", "8", "bf16", "750 (750-750)", "500 (500-500)", "**1.50 x** (1.50-1.50)", "10.7", "16.0",
                          "2.00 GiB", "1.00 GiB", "0.50 x", "0.03"])

    def test_what_is_unknown_is_not_zero(self):
        row = summary.table_row(finished_cell(peak_bytes={"torch": None, "batchmark": 1 << 30}, load={"median": None, "max": None}))
        self.assertEqual(row[9:], ["unknown", "1.00 GiB", "unknown", "unknown"])

    def test_a_disturbed_cell_says_so(self):
        self.assertEqual(summary.table_row(finished_cell(load={"median": 1.5, "max": 2}))[-1], "1.50, disturbed")

    def test_a_compiled_cell_of_bert(self):
        row = summary.table_row(finished_cell(net="bert", head="masked", size=128, compile=True))
        self.assertEqual(row[:5], ["bert-masked", "128", "8", "bf16", "750 (750-750) compiled"])

    def test_a_cell_that_did_not_run_shows_its_reason(self):
        failed = {"net": "unet", "head": None, "size": 64, "batch": 8, "amp": "off", "status": "failed", "reason": "died: a | b"}
        lines = summary.markdown_table([finished_cell(), failed]).splitlines()
        self.assertIn("| unet | 64 | 8 | off | failed: died: a \\| b |", lines[3])
        self.assertEqual({line.replace("\\|", "").count("|") for line in lines}, {len(summary.HEADINGS) + 1})

    def test_three_digits_at_any_scale(self):
        self.assertEqual([summary.significant(x) for x in (1234.5, 99.96, 5.678, 0.01234)], ["1234", "100.0", "5.68", "0.0123"])


class Cells(unittest.TestCase):
    def test_cells(self):
        self.assertEqual(cells.parse("224/8/bf16, unet/64/32"), [("resnet50", None, 224, 8, "bf16"), ("unet", None, 64, 32, "off"),
                                                                ("unet", None, 64, 32, "bf16")])
        self.assertEqual(cells.parse("bert/128/1/off,bert-masked/128/1/bf16"),
                         [("bert", "all", 128, 1, "off"), ("bert", "masked", 128, 1, "off"), ("bert", "masked", 128, 1, "bf16")])

    def test_wrong_cells(self):
        for text in ("", "224", "224/0", "4/8", "224/8/fp8", "224/8/bf16/1", "224/-1", "a/b", "224/8,", "224/8/off,224/8/off",
                     "224/8,224/8/bf16", "vgg/224/8", "unet", "unet/256", "unet/256/1/off/2", "bert/128/1,bert-all/128/1/off", "resnet50/9/9,9/9"):
            with self.subTest(text), self.assertRaises(cells.CellError) as caught:
                cells.parse(text)
            self.assertNotIn("\n", str(caught.exception))

    def test_lists(self):
        for lists in (cells.DEFAULT, cells.FULL):
            every = cells.listed(cells.NETS, lists)
            self.assertEqual({cell.net for cell in every}, set(cells.NETS))
            self.assertTrue({"all", "masked"} <= {cell.head for cell in every})
            self.assertEqual({cell.net for cell in cells.listed(["unet"], lists)}, {"unet"})
        self.assertEqual(len(cells.listed(cells.NETS, cells.FULL)), 10 + 6 + 16)
        for nets in ([""], ["vgg"], ["unet", "unet"]):
            with self.subTest(nets), self.assertRaises(cells.CellError):
                cells.listed(nets, cells.DEFAULT)

    def test_a_name_is_what_parse_takes(self):
        for cell in cells.listed(cells.NETS, cells.FULL):
            self.assertEqual(cells.parse(cells.name(cell)), [cell])

    def test_options_of_both_programs(self):
        self.assertEqual(cells.options(cells.parse("bert-all/128/4/bf16")[0]),
                         ["--net", "bert", "--size", "128", "--batch", "4", "--amp", "bf16", "--head", "all"])
        self.assertEqual(cells.options(cells.parse("unet/256/2/off")[0]), ["--net", "unet", "--size", "256", "--batch", "2", "--amp", "off"])


class Arguments(unittest.TestCase):
    def test_cells_or_nets(self):
        self.assertEqual(peers.parse_arguments([]).cells, cells.listed(cells.NETS, cells.DEFAULT))
        self.assertEqual(peers.parse_arguments(["--nets", "bert,unet", "--full"]).cells, cells.listed(["bert", "unet"], cells.FULL))
        self.assertEqual(peers.parse_arguments(["--cells", "unet/64/2/off"]).cells, [("unet", None, 64, 2, "off")])
        for words in (["--nets", "vgg"], ["--cells", "unet"], ["--cells", ""], ["--timeout", "0"], ["--compile", "maybe"]):
            with self.subTest(words), self.assertRaises(peers.UsageError):
                peers.parse_arguments(words)

    def test_who_compiles(self):
        cell = cells.parse("bert-all/128/1/off")[0]
        for choice, compiled in (("on", True), ("off", False)):
            args = peers.parse_arguments(["--compile", choice, "--python", "python", "--cells", "bert-all/128/1/off"])
            self.assertEqual(peers.planned(args), [(cell, compiled)])
            self.assertEqual("--compile" in peers.commands(args, cell, compiled)["torch"], compiled)
            self.assertNotIn("--compile", peers.commands(args, cell, compiled)["batchmark"])
        both = peers.parse_arguments(["--compile", "both", "--cells", "bert-all/128/1/off"])
        self.assertEqual(peers.planned(both), [(cell, False), (cell, True)])

    def test_a_gpu_has_cells_of_its_own_and_both_run_there(self):
        args = peers.parse_arguments(["--device", "cuda", "--python", "python"])
        self.assertEqual(args.cells, cells.listed(cells.NETS, cells.GPU))
        self.assertEqual({cell.batch > 1 for cell, compiled in peers.planned(args) if compiled}, {True})
        for cell, compiled in peers.planned(args):
            for words in peers.commands(args, cell, compiled).values():
                self.assertEqual(words[words.index("--device") + 1], "cuda")
        self.assertEqual(cells.parse("224/8/tf32")[0].amp, "tf32")

    def test_auto_compiles_where_that_is_faster_and_can_be_done(self):
        args = peers.parse_arguments([])
        kinds = {(cell.net, cell.amp) for cell in cells.listed(cells.NETS, cells.FULL) if cells.faster_compiled(cell)}
        self.assertEqual(kinds, cells.COMPILED)
        for compiler, possible in ((sys.executable, True), ("/nowhere/g++", False)):
            with mock.patch.dict(os.environ, CXX=compiler):
                self.assertEqual([peers.compiles(args, cell) for cell in cells.parse("unet/256/1,224/1/bf16")],
                                 [False, possible, False])

    def test_blocks_fill_the_time(self):
        args = peers.parse_arguments(["--rounds", "6", "--seconds", "30"])
        self.assertEqual(peers.block_steps(args, [0.3, 0.2]), 9)        # 10 steps of both make 5 s
        self.assertEqual(peers.block_steps(args, [30, 20]), peers.STEPS_MIN)
        self.assertEqual(peers.block_steps(args, [1e-4, 1e-4]), peers.STEPS_MAX)
        self.assertEqual(peers.block_steps(peers.parse_arguments(["--steps", "5"]), [1, 1]), 5)


def fake(mode, timeout=20.0):
    return Peer("PyTorch", [sys.executable, FAKE, mode], {}, timeout)


class Protocol(unittest.TestCase):
    def test_steps_and_peak(self):
        with fake("good") as peer:
            self.assertEqual(peer.wait_ready()["version"], "9.9.9")
            self.assertEqual(peer.run(3), [2**-10] * 3)
            self.assertEqual(peer.run(1), [2**-10])
            self.assertEqual(peer.peak_bytes(), 1 << 30)
            self.assertGreaterEqual(peer.cpu_seconds(), 0)

    def test_a_reply_in_pieces(self):
        with fake("in-pieces") as peer:
            peer.wait_ready()
            self.assertEqual(peer.run(4), [2**-10] * 4)

    def test_a_waiting_peer_is_idle(self):
        with fake("good") as peer:
            peer.wait_ready()
            before = peer.cpu_seconds()
            time.sleep(0.3)
            self.assertLessEqual(peer.cpu_seconds() - before, 0.02)

    def test_broken_answers(self):
        expected = {
            "garbage": "PyTorch answered 'Segmentation fault | sorry' instead of a JSON object",
            "binary": "instead of a JSON object",
            "list": "PyTorch answered '[1, 2]' instead of a JSON object",
            "endless": "a line of more than 8 MiB",
            "dies": "PyTorch ended with exit code 7",
            "killed": "PyTorch was killed (signal 9)",
            "too-few": "instead of the seconds of 2 steps",
            "zero-time": "instead of the seconds of 2 steps",
            "nan-loss": "reports a loss of nan",
            "error": "PyTorch: the loss is not finite",
        }
        for mode, text in expected.items():
            with self.subTest(mode), self.assertRaises(PeerError) as caught, fake(mode) as peer:
                peer.wait_ready()
                peer.run(2)
            self.assertIn(text, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    def test_bad_starts(self):
        expected = {"dies-at-start": "PyTorch ended with exit code 1: 'out of luck'", "no-greeting": "instead of its greeting"}
        for mode, text in expected.items():
            with self.subTest(mode), self.assertRaises(PeerError) as caught, fake(mode) as peer:
                peer.wait_ready()
            self.assertIn(text, str(caught.exception))

    def test_a_peer_that_hangs_is_ended(self):
        for mode in ("hangs-at-start", "hangs"):
            start = time.monotonic()
            with self.subTest(mode), self.assertRaises(PeerError) as caught, fake(mode, 1.5) as peer:
                peer.wait_ready()
                peer.run(1)
            self.assertEqual(str(caught.exception), "PyTorch did not answer within 1.5 s")
            self.assertLess(time.monotonic() - start, 15)

    def test_a_missing_program(self):
        with self.assertRaises(PeerError) as caught:
            Peer("PyTorch", ["/nowhere/python"], {}, 1)
        self.assertEqual(str(caught.exception), "PyTorch cannot be started: /nowhere/python: No such file or directory")

    def test_unsupported_is_not_a_failure(self):
        with self.assertRaises(PeerUnsupported), fake("unsupported") as peer:
            peer.wait_ready()


class Driver(unittest.TestCase):
    """peers.py as a program, with fakes in the place of batchmark and of a Python with torch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "out")

    def program(self, mode):
        path = os.path.join(self.folder, mode)
        with open(path, "w") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" {mode} "$@"\n')
        os.chmod(path, stat.S_IRWXU)
        return path

    def command(self, torch, ours, *more):
        return [sys.executable, os.path.join(PEERS, "peers.py"), "--python", torch if "/" in torch else self.program(torch),
                 "--binary", ours if "/" in ours else self.program(ours), "--out", self.out, "--cells", "64/8", "--timeout", "20", *more]

    def drive(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120)

    def record(self):
        with open(os.path.join(self.out, "peers.json")) as file:
            return json.load(file)

    def test_the_whole_run(self):
        result = self.drive("slow", "good", "--rounds", "4", "--steps", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("**2.00 x** (2.00-2.00)", result.stdout)
        record = self.record()
        self.assertEqual([(c["net"], c["head"], c["size"], c["batch"], c["amp"], c["status"]) for c in record["cells"]],
                         [("resnet50", None, 64, 8, "off", "ok"), ("resnet50", None, 64, 8, "bf16", "ok")])
        cell = record["cells"][0]
        self.assertEqual([r["order"][0] for r in cell["rounds"]], ["torch", "batchmark", "torch", "batchmark"])
        self.assertEqual([len(r["torch"]["seconds"]) for r in cell["rounds"]], [3] * 4)
        self.assertEqual(cell["peak_bytes"], {"torch": 2 << 30, "batchmark": 1 << 30})
        self.assertEqual(record["environment"]["torch"]["version"], "9.9.9")
        self.assertIsNotNone(record["finished"])
        self.assertEqual(os.listdir(self.out), ["peers.json"])

    def test_all_nets(self):
        result = self.drive("slow", "good", "--rounds", "1", "--steps", "1", "--cells", "64/1/off,unet/64/1/bf16,bert/128/1/off")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([(c["net"], c["head"], c["size"]) for c in self.record()["cells"]],
                         [("resnet50", None, 64), ("unet", None, 64), ("bert", "all", 128), ("bert", "masked", 128)])
        self.assertIn("| bert-masked | 128 | 1 | off |", result.stdout)

    def test_a_peer_that_fails_costs_its_cells(self):
        result = self.drive("dies", "good")
        self.assertEqual(result.returncode, 1)
        self.assertIn("failed: PyTorch ended with exit code 7", result.stdout)
        self.assertEqual([c["status"] for c in self.record()["cells"]], ["failed", "failed"])

    def test_an_unsupported_cell_is_skipped(self):
        result = self.drive("good", "unsupported", "--rounds", "1")
        self.assertEqual(result.returncode, 3)
        self.assertIn("skipped: batchmark: bf16 is not timed here", result.stdout)

    def test_each_cell_without_and_with_the_compiler(self):
        result = self.drive("slow", "good", "--rounds", "1", "--steps", "1", "--cells", "64/8/off", "--compile", "both")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([c["compile"] for c in self.record()["cells"]], [False, True])

    def test_a_spent_budget_leaves_the_rest_out(self):
        result = self.drive("good", "good", "--rounds", "1", "--steps", "1", "--budget", "0")
        self.assertEqual(result.returncode, 3)
        self.assertEqual([c["status"] for c in self.record()["cells"]], ["skipped", "skipped"])
        self.assertIn("the budget of 0 s was spent", result.stdout)

    def test_a_gpu_is_named(self):
        result = self.drive("good", "good", "--rounds", "1", "--steps", "1", "--device", "cuda", "--cells", "64/8/fp16")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("device memory of tensors", result.stdout)
        self.assertEqual(self.record()["options"]["device"], "cuda")

    def test_an_unknown_peak_stays_unknown(self):
        result = self.drive("no-peak", "good", "--rounds", "1", "--steps", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIsNone(self.record()["cells"][0]["peak_bytes"]["torch"])

    def test_an_interrupt_keeps_what_was_finished(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                self.interrupt(number)
                os.remove(os.path.join(self.out, "peers.json"))

    def interrupt(self, number):
        words = self.command("hangs-in-bf16", "good", "--rounds", "1", "--steps", "1", "--timeout", "60")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
            deadline = time.monotonic() + 60
            while not os.path.exists(os.path.join(self.out, "peers.json")) and time.monotonic() < deadline:
                time.sleep(0.05)
            driver.send_signal(number)
            output, errors = driver.communicate(timeout=60)
        self.assertEqual(driver.returncode, 3, errors)
        self.assertIn("interrupted; what was finished is in", errors)
        self.assertNotIn("Traceback", errors)
        self.assertIn("| resnet50 | 64 | 8 | off |", output)
        self.assertEqual([c["amp"] for c in self.record()["cells"]], ["off"])
        self.assertIsNone(self.record()["finished"])

    def one_line(self, result, code, text):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertIn(text, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertFalse(os.path.exists(self.out))

    def test_wrong_use_is_one_line(self):
        self.one_line(self.drive("good", "good", "--rounds", "0"), 2, "--rounds 0: must be from 1 to 1000")
        self.one_line(self.drive("good", "good", "--frobnicate"), 2, "--frobnicate")
        self.one_line(self.drive("good", "good", "--steps", "many"), 2, "many")
        self.one_line(self.drive("good", "good", "--cells", "x"), 2, "--cells: 'x' must be")
        self.one_line(self.drive("good", "/nowhere/batchmark"), 1, "/nowhere/batchmark is not there")
        self.one_line(self.drive("/nowhere/python", "good"), 1, "/nowhere/python cannot be started: No such file or directory")
        self.one_line(self.drive("no-torch", "good"), 1, "cannot import torch: ModuleNotFoundError")

    def test_an_out_folder_that_is_a_file(self):
        with open(self.out, "w"):
            pass
        result = self.drive("good", "good")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot be made: File exists", result.stderr)


class Setup(unittest.TestCase):
    """The environment with torch; nothing is downloaded."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_folder_of_something_else_is_left_alone(self):
        precious = os.path.join(self.folder, "precious")
        with open(precious, "w"):
            pass
        with self.assertRaises(torch_venv.TorchMissing) as caught:
            torch_venv.create(self.folder, self.fail)
        self.assertIn("is not a virtual environment", str(caught.exception))
        self.assertEqual(os.listdir(self.folder), ["precious"])

    def test_a_failing_step_gives_its_last_line(self):
        with self.assertRaises(torch_venv.TorchMissing) as caught:
            torch_venv.run_step([sys.executable, "-c", "import sys; sys.exit('a\\nno route to host')"], "pip could not install torch")
        self.assertEqual(str(caught.exception), "pip could not install torch: no route to host")

    def test_without_packages_nothing_is_left(self):
        os.environ["PIP_NO_INDEX"] = "1"
        self.addCleanup(os.environ.pop, "PIP_NO_INDEX")
        needed, torch_venv.NEEDED_BYTES = torch_venv.NEEDED_BYTES, 0
        self.addCleanup(setattr, torch_venv, "NEEDED_BYTES", needed)
        said = []
        with self.assertRaises(torch_venv.TorchMissing) as caught:
            torch_venv.create(os.path.join(self.folder, "venv"), said.append)
        self.assertRegex(str(caught.exception), "^(pip could not install torch|making the virtual environment failed).*$")
        self.assertIn("installing it with pip", said[0])
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_full_disk_is_seen_before_it_is_full(self):
        needed, torch_venv.NEEDED_BYTES = torch_venv.NEEDED_BYTES, 1 << 62
        self.addCleanup(setattr, torch_venv, "NEEDED_BYTES", needed)
        with self.assertRaises(torch_venv.TorchMissing) as caught:
            torch_venv.create(os.path.join(self.folder, "venv"), self.fail)
        self.assertIn("GiB left", str(caught.exception))


class Serve(unittest.TestCase):
    """`batchmark serve` itself, on a small net."""

    def serve(self, text, *more):
        words = [BATCHMARK, "serve", "--size", "32", "--batch", "2", "--width", "0.25", "--classes", "10", *more]
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)

    def setUp(self):
        if not BATCHMARK:
            self.skipTest("no batchmark named on the command line")

    def test_a_conversation(self):
        result = self.serve("run 3\npeak\nrun 0\nrun 1x\nhello\nrun 100001\n" + "x" * 500 + "\nrun 1\nquit\nrun 1\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        replies = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(replies), 9)
        self.assertIs(replies[0]["ready"], True)
        self.assertEqual(len(replies[1]["seconds"]), 3)
        self.assertTrue(all(s > 0 for s in replies[1]["seconds"]))
        self.assertGreater(replies[2]["peak_bytes"], 1 << 20)
        for reply in replies[3:8]:
            self.assertIn("is not a command", reply["error"])
        self.assertEqual(len(replies[8]["seconds"]), 1)

    def test_the_end_of_the_input_ends_it(self):
        result = self.serve("")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 1)

    def test_a_cell_that_does_not_fit(self):
        result = self.serve("run 1\n", "--mem-limit", "1MiB")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(json.loads(result.stdout)["code"], "oom")
        self.assertIn("the limit is 1", result.stderr)

    def test_wrong_use(self):
        result = self.serve("", "--batch", "1,2")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1 and "/" in sys.argv[1]:
        BATCHMARK = sys.argv.pop(1)
    unittest.main()
