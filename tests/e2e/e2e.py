#!/usr/bin/env python3
"""End-to-end tests: the real kgate, the emulated device, sections that die on purpose.

usage: e2e.py KGATE CRASH_PLUGIN_DIR RESULT_SCHEMA [TEST...]
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

try:
    import jsonschema
except ImportError:
    jsonschema = None

KGATE, PLUGINS, SCHEMA = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:4])
# Every process of a test inherits it, so that whatever stays behind can be found.
MARK = "KGATE_E2E_MARK=%d.%d" % (os.getpid(), time.monotonic_ns())

# A sanitizer would turn the signal into an exit.
os.environ["ASAN_OPTIONS"] = "handle_segv=0:" + os.environ.get("ASAN_OPTIONS", "")

# kind: verdict, reason and signal of the cell `fault`
FAULTS = {
    "abort": ("FAIL", "crashed", "SIGABRT"),
    "exit": ("FAIL", "exited", None),
    "flood": ("FAIL", "protocol", None),
    "garbage": ("FAIL", "protocol", None),
    "hang": ("FAIL", "hung", None),
    "kill": ("FAIL", "killed", "SIGKILL"),
    "liar": ("FAIL", "protocol", None),
    "line": ("FAIL", "protocol", None),
    "lost": ("FAIL", "device-fault", None),
    "memory": ("ERROR", "out-of-memory", None),
    "none": ("PASS", "", None),
    "orphan": ("FAIL", "crashed", "SIGABRT"),
    "segv": ("FAIL", "crashed", "SIGSEGV"),
    "spew": ("FAIL", "crashed", "SIGABRT"),
    "stranger": ("FAIL", "protocol", None),
    "twice": ("FAIL", "protocol", None),
}


class Failed(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failed(what)


def equal(got, want, what):
    expect(got == want, "%s: got %r, want %r" % (what, got, want))


class Box:
    """A folder of its own for one test, and kgate in it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.results = self.folder / "results"

    def manifest(self, kinds, cell="2s", section="90s", memory="256MiB"):
        text = "kgate: 1\nname: e2e\nlimits: {cell: %s, section: %s, memory: %s}\n" % (
            cell, section, memory)
        text += "sections:\n" + "".join("  - name: crash-%s\n" % k for k in kinds)
        (self.folder / "e2e.yaml").write_text(text)
        return "./e2e.yaml"

    def start(self, *arguments, results=None):
        name, value = MARK.split("=")
        env = dict(os.environ, **{name: value, "SECRET_TOKEN": "do-not-leak"})
        for gone in ("KGATE_ONLY", "KGATE_FAST", "KGATE_MODELS_DIR"):
            env.pop(gone, None)
        command = [KGATE, *arguments, "--plugin-dir", PLUGINS]
        if arguments[0] == "run":
            command += ["--device", "emu", "--results", str(results or self.results)]
        return subprocess.Popen(command, cwd=self.folder, env=env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run(self, *arguments, status, timeout=90, results=None):
        process = self.start(*arguments, results=results)
        out, err = process.communicate(timeout=timeout)
        self.out, self.err = out, err
        equal(process.returncode, status, "exit status (%s%s)" % (out[-1500:], err))
        expect("\033" not in out + err, "an escape sequence in the output")
        no_strays()
        return out

    def result(self):
        return read(self.results / "latest" / "result.json")


def read(path):
    text = pathlib.Path(path).read_text()
    expect("do-not-leak" not in text, "the result holds the environment")
    result = json.loads(text)
    if jsonschema:
        jsonschema.validate(result, json.loads(pathlib.Path(SCHEMA).read_text()))
    counts = {v: sum(c["verdict"] == v for c in result["cells"])
              for v in ("PASS", "FAIL", "SKIP")}
    for verdict, n in counts.items():
        equal(result["summary"][verdict.lower()], n, "summary of " + verdict)
    for section in result["sections"]:
        equal(section["cells"],
              sum(c["section"] == section["name"] for c in result["cells"]),
              "cells of " + section["name"])
    return result


def strays():
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def no_strays():
    equal(strays(), [], "processes left behind")


def cells_of(result, kind):
    return {c["id"].rsplit(".", 1)[1]: c for c in result["cells"]
            if c["section"] == "crash-" + kind}


def section_of(result, kind):
    return next(s for s in result["sections"] if s["name"] == "crash-" + kind)


def check_faults(result):
    for kind, (verdict, reason, signal_name) in FAULTS.items():
        cells = cells_of(result, kind)
        equal(sorted(cells), ["after", "before", "fault"], kind)
        fault = cells["fault"]
        equal((fault["verdict"], fault["reason"], fault.get("signal")),
              (verdict, reason, signal_name), kind)
        for other in ("before", "after"):
            equal(cells[other]["verdict"], "PASS", "%s.%s" % (kind, other))
            expect(cells[other]["digest"], "%s.%s has no digest" % (kind, other))
        section = section_of(result, kind)
        equal(section["status"], "ok", kind)
        equal(section["restarts"], 0 if kind == "none" else 1, kind + " restarts")


def test_verdicts(box):
    """Each death costs exactly its own cell."""
    out = box.run("run", box.manifest([*FAULTS, "plan", "late"]), status=1)
    result = box.result()
    check_faults(result)
    for kind, cells in (("plan", 0), ("late", 3)):
        section = section_of(result, kind)
        equal((section["status"], section["reason"], section["restarts"]),
              ("error", "crashed", 0), kind)
        equal(section["cells"], cells, kind)
    equal({c["verdict"] for c in cells_of(result, "late").values()}, {"PASS"}, "late")
    equal(result["summary"]["verdict"], "RED", "verdict")
    equal(result["summary"]["error"], 3, "errors")
    segv = cells_of(result, "segv")["fault"]
    expect("about to touch nothing" in segv["log_tail"], "no log tail")
    expect("--cell crash-segv.fault" in segv["repro"], "no repro command")
    expect(segv["repro"] in out, "the repro command is not shown")
    spew = cells_of(result, "spew")["fault"]
    expect(spew["log_tail"].endswith("the last words"), "the end of the log is lost")
    log = box.results / "latest" / "logs" / "crash-spew.log"
    expect(1 << 20 < log.stat().st_size < 9 << 20, "the log is not capped")
    expect(log.read_text().endswith("the last words\n"), "the log lacks its end")
    expect("\\x1b[2J" in out, "what the host said is not shown escaped")


def test_parallel(box):
    box.run("run", box.manifest(FAULTS), "--jobs", "4", status=1)
    check_faults(box.result())


def test_repro(box):
    """The repro command of a cell gives the same verdict."""
    box.run("run", box.manifest(["segv"]), status=1)
    repro = cells_of(box.result(), "segv")["fault"]["repro"].split()
    equal(repro[:2], ["kgate", "run"], "repro")
    finished = subprocess.run([KGATE, *repro[1:]], cwd=box.folder, capture_output=True,
                              text=True, timeout=60, check=False)
    equal(finished.returncode, 1, "exit status")
    cells = cells_of(read(box.results / "latest" / "result.json"), "segv")
    equal({k: c["reason"] for k, c in cells.items()},
          {"before": "filtered", "fault": "crashed", "after": "filtered"}, "reasons")


def test_section_limit(box):
    box.run("run", box.manifest(["hang"], cell="2s", section="2s"), status=1)
    result = box.result()
    cells = cells_of(result, "hang")
    equal([cells[k]["reason"] for k in ("before", "fault", "after")],
          ["", "hung", "not-run"], "reasons")
    equal(section_of(result, "hang")["status"], "error", "status")


def test_relapse(box):
    """Restarts that lead nowhere end."""
    box.run("run", box.manifest(["relapse", "none"]), status=1)
    result = box.result()
    cells = cells_of(result, "relapse")
    equal([cells[k]["reason"] for k in ("before", "fault", "after")],
          ["", "crashed", "not-run"], "reasons")
    section = section_of(result, "relapse")
    equal((section["status"], section["restarts"]), ("error", 2), "section")
    equal({c["verdict"] for c in cells_of(result, "none").values()}, {"PASS"}, "none")


def on_terminal(box, columns, **environment):
    """The bytes that kgate writes to a terminal of so many columns."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = dict(os.environ, TERM="xterm", **environment)
    process = subprocess.Popen(
        [KGATE, "run", box.manifest(["none", "hang", "segv"], cell="1s"), "--device",
         "emu", "--plugin-dir", PLUGINS, "--results", str(box.results)], cwd=box.folder,
        env=env, stdin=side, stdout=side, stderr=side)
    os.close(side)
    data = b""
    try:
        while chunk := os.read(main, 65536):
            data += chunk
    except OSError:  # the other side is closed
        pass
    os.close(main)
    equal(process.wait(timeout=30), 1, "exit status")
    return data.decode()


def test_terminal(box):
    text = on_terminal(box, 30)
    equal(re.findall(r"\033(?!\[(?:K|\d*(?:;\d+)*m))", text), [], "odd escapes")
    live = re.findall(r"\033\[2m(\[\d/3\][^\033]*)\033\[0m", text)
    expect(len(live) > 3, "no live line")
    expect(max(map(len, live)) <= 29, "a live line that wraps")
    last = text.rindex(live[-1])
    expect("\r\033[K" in text[last:], "the live line is not erased")
    plain = on_terminal(box, 200, NO_COLOR="1")
    equal(re.findall(r"\033\[[0-9;]*m", plain), [], "colours with NO_COLOR")
    expect("crash-hang.fault" in plain, "the live line does not name the cell")


def wait_for_host(process, n=1):
    """Until n hosts of the run are there, and have had a moment to get to their cell."""
    for _ in range(200):
        if len(strays()) > n:
            time.sleep(0.5)
            return
        expect(process.poll() is None, "kgate ended by itself")
        time.sleep(0.05)
    raise Failed("no host appeared")


def interrupt(box, number):
    process = box.start("run", box.manifest(["none", "hang", "segv"], cell="60s"))
    wait_for_host(process)
    begun = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    expect(time.monotonic() - begun < 8, "took too long to stop")
    equal(process.returncode, 130, "exit status (%s%s)" % (out, err))
    no_strays()
    result = box.result()
    equal(result["run"]["interrupted"], True, "interrupted")
    equal(result["summary"]["verdict"], "INCOMPLETE", "verdict")
    equal({c["verdict"] for c in cells_of(result, "none").values()}, {"PASS"}, "none")
    equal({k: c["reason"] for k, c in cells_of(result, "hang").items()},
          {"before": "", "fault": "not-run", "after": "not-run"}, "hang")
    equal(section_of(result, "segv")["status"], "not-run", "segv")
    expect("interrupted" in out, "the summary does not say so")


def test_interrupt(box):
    interrupt(box, signal.SIGINT)


def test_terminate(box):
    interrupt(box, signal.SIGTERM)


def test_killed_supervisor(box):
    """Hosts do not outlive a supervisor that is killed."""
    process = box.start("run", box.manifest(["hang"], cell="60s"))
    wait_for_host(process)
    process.kill()
    process.communicate(timeout=10)
    for _ in range(40):
        if not strays():
            return
        time.sleep(0.05)
    no_strays()


def test_unwritable(box):
    """A results folder that cannot be is found before anything runs."""
    (box.folder / "file").write_text("")
    box.run("run", box.manifest(["none"]), status=2, results=box.folder / "file" / "r")
    expect(re.match(r"kgate: .*results folder.*\n$", box.err), "not one line: " + box.err)
    expect("crash-none" not in box.out, "cells were run")


def test_full_disk(box):
    """So is a full disk (where this user may mount one)."""
    tiny = box.folder / "tiny"
    tiny.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tiny],
                             capture_output=True, check=False)
    if mounted.returncode != 0:
        return "skipped: cannot mount a tmpfs"
    try:
        box.run("run", box.manifest(["none"]), status=2, results=tiny / "r")
        expect("No space left" in box.err, box.err)
        equal(list(tiny.glob("r/*")), [], "left in the results folder")
    finally:
        subprocess.run(["umount", tiny], check=True)
    return None


def test_lost_folder(box):
    """The folder goes away during the run: the result is written elsewhere."""
    process = box.start("run", box.manifest(["hang"]))
    wait_for_host(process)
    shutil.rmtree(box.results)
    out, err = process.communicate(timeout=30)
    equal(process.returncode, 2, "exit status")
    expect("cannot be written" in err, err)
    path = re.search(r"^Result: (.*)$", out, re.M).group(1)
    equal(cells_of(read(path), "hang")["fault"]["reason"], "hung", "reason")
    shutil.rmtree(pathlib.Path(path).parent)


def test_selection(box):
    manifest = box.manifest(["none", "segv", "abort"])
    box.run("run", manifest, "--only", "none", status=0)
    result = box.result()
    equal(result["summary"]["verdict"], "GREEN", "verdict")
    equal([s["status"] for s in result["sections"]], ["ok", "filtered", "filtered"], "")
    box.run("run", manifest, "--cell", "crash-segv.[ab]*", status=0)
    result = box.result()
    cells = cells_of(result, "segv")
    equal((cells["fault"]["verdict"], cells["fault"]["reason"]), ("SKIP", "filtered"), "")
    equal((result["summary"]["verdict"], result["summary"]["pass"]), ("GREEN", 2), "")
    box.run("run", manifest, "--only", "none", "--require-complete", status=3)
    box.run("run", manifest, "--only", "nothing-like-it", status=2)
    expect(box.err.count("\n") == 1, "not one line: " + box.err)
    latest = os.readlink(box.results / "latest")
    kept = sorted(os.listdir(box.results))
    box.run("run", manifest, "--cell", "crash-none.nope", status=2)
    expect("nope" in box.err, box.err)
    box.run("run", manifest, "--cell", "crash-none.*", "--cell", "crash-segv.x*", status=2)
    equal(box.err, "kgate: no cell matches --cell crash-segv.x*, did you mean --cell "
          "crash-segv.fault?\n", "one of two globs")
    box.run("run", manifest, "--only", "none", "--cell", "crash-segv.*", status=2)
    equal((os.readlink(box.results / "latest"), sorted(os.listdir(box.results))),
          (latest, kept), "a refused selection left something")


def test_asked(box):
    """Roles and params that a section does not have are refused before anything runs."""
    manifest = box.manifest(["none", "late"])
    text = (box.folder / "e2e.yaml").read_text()

    def refused(lines, *words, command="run"):
        (box.folder / "e2e.yaml").write_text(text + lines)
        box.run(command, manifest, *words, status=2)
        expect(not box.results.exists(), "a refused manifest left something")
        return box.err

    equal(refused("    params: {\n      colour: red}\n"),
          "kgate: ./e2e.yaml:8:7: section crash-late has no param \"colour\" (it has "
          "none)\n", "a param")
    expect("has no param" in refused("    params: {colour: red}\n", command="list"), "list")
    equal(refused("", "--param", "crash-none.x=1"),
          "kgate: --param: section crash-none has no param \"x\" (it has none)\n", "--param")
    shutil.copy(pathlib.Path(__file__).parents[2] / "models.yaml", box.folder)
    equal(refused("    artifacts: {wieghts: kgate-dtypes}\n", "--fast"),
          "kgate: ./e2e.yaml:7:17: section crash-late has no role \"wieghts\" (it has "
          "none)\n", "a role")


def test_shards(box):
    """The shards of a battery are disjoint and cover it."""
    manifest = box.manifest(["none", "late"])
    seen = []
    for i in (1, 2, 3):
        process = box.start("run", manifest, "--shard", "%d/3" % i)
        process.communicate(timeout=60)
        latest = box.results / "latest" / "result.json"
        seen += [c["id"] for c in read(latest)["cells"] if c["verdict"] == "PASS"]
    equal(len(seen), len(set(seen)), "cells in two shards")
    equal(len(seen), 6, "cells in all shards")


def steady(result):
    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k != "seconds"}
        return [strip(v) for v in value] if isinstance(value, list) else value
    return json.dumps({k: strip(v) for k, v in result.items() if k != "run"})


def test_repeatable(box):
    """Two equal runs differ in run{} and `seconds` only; keys are sorted."""
    manifest = box.manifest(["none", "segv", "garbage", "exit"])
    box.run("run", manifest, status=1)
    first = box.result()
    box.run("run", manifest, status=1)
    expect(steady(box.result()) == steady(first), "the second result differs")
    text = (box.results / "latest" / "result.json").read_text()
    json.loads(text, object_pairs_hook=lambda pairs: expect(
        [k for k, _ in pairs] == sorted(k for k, _ in pairs), "keys are not sorted"))


def test_missing_plugin(box):
    box.run("run", box.manifest(["none", "absent"]), status=1)
    section = section_of(box.result(), "absent")
    equal((section["status"], section["reason"]), ("error", "bad-plugin"), "section")


def test_list(box):
    manifest = box.manifest(["none", "segv"])
    listed = json.loads(box.run("list", manifest, "--cells", "--json", status=0))
    ids = [c["id"] for s in listed["sections"] for c in s["cells"] if c["selected"]]
    equal(ids, ["crash-%s.%s" % (k, c) for k in ("none", "segv")
                for c in ("before", "fault", "after")], "cells")
    expect("crash-segv.after" in box.run("list", manifest, "--cells", status=0), "text")


def test_output(box):
    """--output and --json give the same result as the folder."""
    manifest = box.manifest(["none"])
    out = box.run("run", manifest, "--output", "r.json", "--json", status=0)
    equal(json.loads(out), box.result(), "--json")
    equal(read(box.folder / "r.json"), box.result(), "--output")


def main():
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    wanted = sys.argv[4:] or list(tests)
    n_failed = 0
    for name in wanted:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kgate-e2e-") as folder:
            try:
                word = tests[name](Box(folder)) or "ok"
            except (Failed, OSError, KeyError, ValueError, AttributeError,
                    subprocess.SubprocessError) as error:
                word = "FAILED: %s: %s" % (type(error).__name__, error)
                n_failed += 1
            except Exception as error:  # a validation error of jsonschema
                word = "FAILED: %s" % str(error)[:2000]
                n_failed += 1
        for pid in strays():
            os.kill(pid, signal.SIGKILL)
        print("%-18s %5.1f s  %s" % (name, time.monotonic() - begun, word), flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
