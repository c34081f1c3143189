#!/usr/bin/env python3
"""Planted faults in SwiGLU must FAIL dsv4-native.swiglu.lanes, each in its own checks.

usage: planted.py KGATE SOURCE_ROOT EMU_PROVIDER PLANTED_PROVIDER...
"""
import json
import pathlib
import subprocess
import sys
import tempfile

GATE_ABOVE = {"gate-above", "gate-far-above", "both-above"}
GATE_BELOW = {"gate-below", "gate-far-below", "gate-below-up-above"}
UP = {"up-above", "up-below", "both-above", "gate-below-up-above"}

# provider: the checks that fail
FAULTS = {
    "emu": set(),
    "emu-two_sided": GATE_BELOW | {"all-rows-weighted"},
    "emu-after_silu": GATE_ABOVE | {"all-rows-weighted"},
    "emu-lost": GATE_ABOVE | UP | {"all-rows-weighted"},
}
CELL = "dsv4-native.swiglu.lanes"


def failed_checks(kgate, root, provider, folder):
    output = folder / (provider.stem + ".json")
    plugins = kgate.parent.parent / "plugins"
    manifest = folder / "planted.yaml"
    manifest.write_text("kgate: 1\nname: planted\nsections:\n  - name: dsv4-native\n")
    run = subprocess.run(
        [str(kgate), "run", str(manifest), "--device", "emu",
         "--provider", str(provider), "--plugin-dir", str(plugins), "--cell", CELL,
         "--results", str(folder), "--output", str(output), "--quiet", "--no-color"],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if run.returncode not in (0, 1):
        sys.exit("%s: kgate exited with %d: %s" % (provider, run.returncode, run.stdout))
    result = json.loads(output.read_text())
    cells = [c for c in result["cells"] if c["id"] == CELL]
    if len(cells) != 1 or cells[0]["verdict"] not in ("PASS", "FAIL"):
        sys.exit("%s: no verdict of %s: %s" % (provider, CELL, run.stdout))
    failed = {c["name"] for c in cells[0]["checks"] if not c["ok"]}
    if (cells[0]["verdict"] == "FAIL") != bool(failed):
        sys.exit("%s: %s without a failed check" % (provider, cells[0]["verdict"]))
    return failed


def main():
    kgate, root = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    providers = [pathlib.Path(p).resolve() for p in sys.argv[3:]]
    if {p.stem for p in providers} != set(FAULTS):
        sys.exit("these providers and the faults of this test do not match")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for provider in providers:
            got = failed_checks(kgate, root, provider, pathlib.Path(folder))
            want = FAULTS[provider.stem]
            print("%s: failed %s" % (provider.stem, ", ".join(sorted(got)) or "nothing"))
            if got != want:
                wrong += 1
                print("  expected %s" % (", ".join(sorted(want)) or "nothing"))
    return 1 if wrong else 0


sys.exit(main())
