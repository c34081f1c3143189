#!/usr/bin/env python3
"""Compare the digests of a run on the emulated device with the committed GPU baseline.

usage: check_digests.py KGATE MANIFEST BASELINE

Cells whose arithmetic is fully ordered have the same output bits on every device, so each
digest of such a cell must equal the one that the GPU gave. A cell that the baseline does not
have yet is listed; one that takes fewer rows of its tensor on the emulated device, which its
parameters say, is counted and not compared.
"""
import json
import os
import subprocess
import sys
import tempfile


def ordered_cells(result):
    """id -> cell, of the cells that passed and are the same on every device."""
    return {c["id"]: c for c in result["cells"]
            if c["verdict"] == "PASS" and c.get("determinism") == "ordered" and c["digest"]}


def main():
    kgate, manifest, baseline = sys.argv[1:]
    with open(baseline, encoding="utf-8") as f:
        want = ordered_cells(json.load(f))
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "emu.json")
        run = subprocess.run([kgate, "run", manifest, "--device", "emu", "--quiet",
                              "--results", folder, "--output", out])
        if run.returncode != 0:
            sys.exit(f"kgate run: exit status {run.returncode}")
        with open(out, encoding="utf-8") as f:
            got = ordered_cells(json.load(f))
    common = want.keys() & got.keys()
    both = sorted(i for i in common if want[i]["params"] == got[i]["params"])
    wrong = [i for i in both if want[i]["digest"] != got[i]["digest"]]
    for i in wrong:
        theirs, ours = want[i]["digest"], got[i]["digest"]
        arms = sorted(a for a in theirs.keys() | ours.keys() if theirs.get(a) != ours.get(a))
        print(f"differs from the GPU: {i} ({', '.join(arms)})")
    missing = sorted(got.keys() - want.keys())
    for i in missing[:20]:
        print(f"not in the baseline: {i}")
    print(f"{len(both)} ordered cells compared with {os.path.basename(baseline)}: "
          f"{len(wrong)} differ; {len(missing)} are not in it, "
          f"{len(common) - len(both)} have other parameters here")
    if not both:
        sys.exit("nothing was compared")
    sys.exit(1 if wrong else 0)


main()
