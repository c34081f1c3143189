#!/usr/bin/env python3
"""Mutants of the harness: each must be ERROR or FAIL by construction.

usage: harness.py KGATE BUILD

  an oracle that reads the kernel's output   passes once, and is found by the skewing provider
  a compare that ignores NaN                 ERROR no-comparison; kgate's own compare: FAIL
  a bound of infinity                        ERROR oracle-degenerate
  a cell that compares nothing               ERROR no-comparison

Each is a section of tests/plugins/.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# section: verdict, reason, words of the detail
WANTED = {
    "fault-honest": ("PASS", None, ""),
    "fault-copied": ("PASS", None, ""),
    "fault-nan": ("FAIL", "check-failed", "got nan"),
    "fault-nanblind": ("ERROR", "no-comparison", "made of them itself"),
    "fault-infinite": ("ERROR", "oracle-degenerate", "not a finite number"),
    "fault-nothing": ("ERROR", "no-comparison", "compared nothing"),
    "fault-hostonly": ("ERROR", "no-comparison", "from no kernel"),
    "fault-oracle": ("ERROR", "oracle-degenerate", "zero everywhere"),
    "fault-self": ("ERROR", "misuse", "with itself"),
}


def manifest(folder, name, sections):
    path = folder / (name + ".yaml")
    path.write_text("kgate: 1\nname: %s\nsections:\n" % name +
                    "".join("  - name: %s\n" % s for s in sections))
    return path


def verdicts(kgate, build, folder):
    output = folder / "out.json"
    path = manifest(folder, "harness", WANTED)
    run = subprocess.run([kgate, "run", path, "--device", "emu", "--plugin-dir",
                          build / "tests/plugins", "--results", folder, "--output", output,
                          "--quiet"], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    if run.returncode != 1:
        yield "kgate run: exit status %d, not 1\n%s" % (run.returncode, run.stdout)
        return
    cells = {c["section"]: c for c in json.loads(output.read_text())["cells"]}
    for section, (verdict, reason, words) in WANTED.items():
        cell = cells[section]
        seen = cell["verdict"], cell.get("reason") or None
        if seen != (verdict, reason) or words not in (cell.get("detail") or ""):
            yield "%s: %s %s, %s" % (section, *seen, cell.get("detail"))


def skewed(build, folder, section):
    """Exit status and words of tools/sensitivity --check on one section."""
    run = subprocess.run([sys.executable, ROOT / "tools/sensitivity", build, "--check",
                          "--plugins", build / "tests/plugins", "--manifest",
                          manifest(folder, "skewed", [section])], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run.returncode, run.stdout


def main():
    kgate, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        errors = list(verdicts(kgate, build, folder))
        for section, status, words in (("fault-honest", 0, "1 of 1 bound cells catch"),
                                       ("fault-copied", 1, "fault-copied.cell passes with")):
            seen = skewed(build, folder, section)
            if seen[0] != status or words not in seen[1]:
                errors.append("%s under a skew: exit status %d, %s" % (section, *seen))
    print("\n".join(errors) if errors else "%d faults of the harness, each found" % len(WANTED))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
