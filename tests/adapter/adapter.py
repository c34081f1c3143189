#!/usr/bin/env python3
"""The examples as a newcomer meets them: built and run against an installed kgate.

usage: adapter.py BUILD_DIR MESON RESULT_SCHEMA CC
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD, MESON, SCHEMA, CC = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
SOURCES = pathlib.Path(__file__).resolve().parents[2]


def sh(*command, cwd, status=0, env=None):
    done = subprocess.run([str(c) for c in command], cwd=cwd, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **(env or {})))
    if done.returncode != status:
        sys.exit("%s: status %d, not %d\n%s" % (" ".join(map(str, command)), done.returncode,
                                                 status, done.stdout))
    return done.stdout


def expect(condition, what):
    if not condition:
        sys.exit("failed: " + what)


class Installed:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        stage = self.folder / "stage"
        sh(*MESON.split(","), "install", "-C", BUILD, "--no-rebuild", "--destdir", stage,
           cwd=folder)
        # Moved: nothing may hang on where it was put first.
        os.rename(stage, self.folder / "moved")
        self.kgate = next((self.folder / "moved").rglob("bin/kgate"))
        pc = next((self.folder / "moved").rglob("kgate.pc"))
        self.env = {"PKG_CONFIG_PATH": str(pc.parent)}
        for name in ("KGATE_ONLY", "KGATE_FAST", "KGATE_MODELS_DIR"):
            os.environ.pop(name, None)
        sh("cp", "-r", SOURCES / "examples", self.folder / "examples", cwd=folder)

    def make(self, example, *words):
        sh("make", "-B", "CC=" + " ".join(CC), "CFLAGS=-O1 -g -Wall -Wextra -Werror", *words,
           cwd=self.folder / "examples" / example, env=self.env)

    def run(self, example, *words, status=0):
        """The cells of a run, by id, and what was shown."""
        folder = self.folder / "examples" / example
        out = sh(self.kgate, "run", *words, cwd=folder, status=status)
        result = json.loads((folder / "results/latest/result.json").read_text())
        try:
            import jsonschema
            jsonschema.validate(result, json.loads(pathlib.Path(SCHEMA).read_text()))
        except ImportError:
            pass
        return {c["id"]: c for c in result["cells"]}, out


def verdicts(cells, part):
    return {c["verdict"] for i, c in cells.items()
            if part in i and c["reason"] != "filtered"}


def test_installed(k):
    out = sh(k.kgate, "list", cwd=k.folder)
    expect("dtypes" in out, "kgate list of the installation: " + out)
    cells, _ = k.run("section", "--fast", "--device", "emu", "--only", "dtypes")
    expect("PASS" in verdicts(cells, "dtypes."), "kgate run --fast of the installation")
    # The reduced models are installed too; without them cells are skipped, not failed.
    cells, _ = k.run("section", "--device", "emu", "--only", "dtype5")
    expect(verdicts(cells, "") == {"PASS"}, "dtype5 of the installation")
    data = next((k.folder / "moved").rglob("share/kgate/tests/data"))
    data.rename(data.parent / "away")
    cells, _ = k.run("section", "--device", "emu", "--only", "dtypes")
    (data.parent / "away").rename(data)
    reasons = {c["reason"] for c in cells.values() if c["verdict"] == "SKIP"}
    expect(reasons <= {"artifact-missing", "device-unsupported"} and
           "artifact-missing" in reasons, "skips of the installation: %s" % reasons)


def test_section(k):
    k.make("section")
    words = ["./my.yaml", "--plugin-dir", ".", "--device", "emu"]
    cells, _ = k.run("section", *words)
    expect(len(cells) == 2 and verdicts(cells, "") == {"PASS"}, "the section passes")
    margins = [c["checks"][0]["margin"] for c in cells.values()]
    expect(all(1e-6 < m < 1 for m in margins), "margins of the section: %s" % margins)
    k.make("section", "FAULT=-DPLANT_FAULT")
    cells, _ = k.run("section", *words, status=1)
    expect(verdicts(cells, "") == {"FAIL"}, "the planted fault fails")


def test_adapter(k):
    lines = (k.folder / "examples/section/my-norms.c").read_text().count("\n")
    expect(lines <= 60, "the section has %d lines" % lines)
    lines = (k.folder / "examples/adapter/adapter.c").read_text().count("\n")
    expect(lines <= 110, "the adapter has %d lines" % lines)
    k.make("adapter", "NAME=good.so")
    k.make("adapter", "NAME=bad.so", "FAULT=-DENGINE_FAULT_LAST_ROW")
    k.make("adapter", "NAME=crash.so", "FAULT=-DENGINE_FAULT_CRASH")
    fast = ["--only", "dtypes", "--fast", "--provider"]
    cells, _ = k.run("adapter", *fast, "./good.so")
    for part in ("q8_1", "q4_0.stage-b", "q8_0.stage-b"):
        expect(verdicts(cells, part) == {"PASS"}, "%s passes on the adapter" % part)
    expect({c["reason"] for i, c in cells.items() if "stage-a" in i} -
           {"filtered"} == {"kernel-missing"},
           "what the adapter lacks is kernel-missing")
    expect({c["reason"] for i, c in cells.items() if "q4_k.stage-b" in i} -
           {"filtered"} == {"device-unsupported"}, "what the engine refuses is device-unsupported")

    # New against old: only the new one fails.
    cells, out = k.run("adapter", *fast, "./bad.so", "--against", "./good.so", status=1)
    broken = cells["dtypes.q8_0.stage-b.1056x7-m5"]
    expect(broken["verdict"] == "FAIL", "the planted fault fails")
    against = broken["against"]
    expect(against["fails_on"] == "new" and against["verdict"] == "PASS" and
           against["same_inputs"], "only the new one fails: %s" % against)
    y = against["outputs"]["differing"]["stage-b/y"]
    expect(y["differ"] == 5 and y["count"] == 35 and sum(y["ulp"].values()) == 5 and
           y["worst"]["index"] % 7 == 6, "what differs: %s" % y)
    expect(abs(y["worst"]["new"] / y["worst"]["old"] - 1.25) < 1e-6, "both values: %s" % y)
    whole = cells["dtypes.q8_0.stage-b.32x1-m1"]["against"]
    expect(whole["fails_on"] == "neither" and
           whole["outputs"]["equal"] == whole["outputs"]["compared"] > 0, "equal bits")
    expect("only the new one fails; stage-b/y: 5 of 35 differ" in out, out)
    expect("8 cells fail on the new one only, 0 on the old one only, 0 on both" in out, out)

    # The page and the diff tell it too.
    folder = k.folder / "examples/adapter"
    sh(k.kgate, "report", "@latest", "-o", "page.html", cwd=folder)
    page = (folder / "page.html").read_text()
    expect("8 cells fail on the new one only, 0 on both" in page and
           "compared with does not fail" in page, "the report page")
    out = sh(k.kgate, "diff", "@previous", "@latest", cwd=folder, status=1)
    expect("the other provider does not fail" in out, "kgate diff: " + out)

    # The other way round, and both.
    cells, out = k.run("adapter", *fast, "./good.so", "--against", "./bad.so")
    against = cells["dtypes.q8_0.stage-b.1056x7-m5"]["against"]
    expect(against["fails_on"] == "old" and "bound" in against["failed_checks"],
           "only the old one fails")
    shutil.copy(k.folder / "examples/adapter/bad.so", k.folder / "examples/adapter/bad2.so")
    cells, out = k.run("adapter", *fast, "./bad.so", "--against", "./bad2.so", status=1)
    against = cells["dtypes.q8_0.stage-b.1056x7-m5"]["against"]
    expect(against["fails_on"] == "both" and against["outputs"]["differing"] == {},
           "both fail, with equal bits")
    expect("the old one fails too" in out, out)

    # A crash of the old one is the old one's.
    cells, _ = k.run("adapter", *fast, "./good.so", "--against", "./crash.so")
    against = cells["dtypes.q4_0.stage-b.2080x1-m2"]["against"]
    expect(cells["dtypes.q4_0.stage-b.2080x1-m2"]["verdict"] == "PASS" and
           (against["verdict"], against["reason"]) == ("FAIL", "crashed"), "the old one crashes")
    cells, _ = k.run("adapter", *fast, "./crash.so", "--against", "./good.so", status=1)
    cell = cells["dtypes.q4_0.stage-b.2080x1-m2"]
    expect((cell["verdict"], cell["reason"]) == ("FAIL", "crashed"), "the new one crashes")

    # A real provider beside the adapter: each has memory of its own.
    emu = next((k.folder / "moved").rglob("providers/emu.so"))
    cells, _ = k.run("adapter", *fast, "./good.so", "--against", emu)
    seen = {c["against"]["fails_on"] for c in cells.values() if "against" in c}
    expect(seen == {"neither"}, "the adapter against emu: %s" % seen)
    out = sh(k.kgate, "run", *fast, "./good.so", "--against", "./good.so",
             cwd=k.folder / "examples/adapter", status=1)
    expect("by means of a copy" in out, "the same file twice: " + out)


def test_old_interfaces(k):
    """A provider whose tables are shorter, as an older kgate had them."""
    folder = k.folder / "examples/adapter"
    text = (folder / "adapter.c").read_text()
    old = text.replace(".size = sizeof matvec,",
                       ".size = offsetof(struct kg_matvec_ops, stage_b),")
    expect(old != text, "the adapter is not what this test edits")
    (folder / "adapter.c").write_text(
        old.replace(".size = sizeof kgate_provider,",
                    ".size = offsetof(struct kg_provider, ceiling),"))
    k.make("adapter", "NAME=old.so")
    (folder / "adapter.c").write_text(text)
    cells, _ = k.run("adapter", "--only", "dtypes", "--fast", "--provider", "./old.so")
    expect(verdicts(cells, "q8_1") == {"PASS"}, "an older provider's kernels still run")
    expect({c["reason"] for i, c in cells.items() if "stage-b" in i} - {"filtered"} ==
           {"kernel-missing"},
           "what is past the end of an older table is kernel-missing")

    folder = k.folder / "examples/section"
    text = (folder / "my-norms.c").read_text()
    (folder / "my-norms.c").write_text(text.replace(
        "sizeof(struct kg_section)", "offsetof(struct kg_section, plan) + sizeof(void *)"))
    k.make("section")
    (folder / "my-norms.c").write_text(text)
    cells, _ = k.run("section", "./my.yaml", "--plugin-dir", ".", "--device", "emu")
    expect(verdicts(cells, "") == {"PASS"}, "an older, smaller section still loads")


def test_cublaslt(k):
    cuda = cuda_toolkit("cublasLt.h")
    if cuda is None:
        print("cublaslt: no CUDA toolkit, not built")
        return
    k.make("cublaslt", "CUDA=%s" % cuda)
    words = ["./vendor.yaml", "--plugin-dir", "."]
    if os.path.exists("/dev/nvidia0"):
        cells, _ = k.run("cublaslt", *words, "--provider", "./cublaslt.so")
        expect(verdicts(cells, "") == {"PASS"}, "cuBLASLt passes")
        return
    out = sh(k.kgate, "run", *words, "--provider", "./cublaslt.so",
             cwd=k.folder / "examples/cublaslt", status=2)
    expect("there is no device on this machine" in out, "no GPU: " + out)


def cuda_toolkit(header):
    for folder in [pathlib.Path("/usr/local/cuda"),
                   *sorted(pathlib.Path("/usr/local").glob("cuda*"), reverse=True)]:
        if (folder / "include" / header).exists():
            return folder
    return None


def test_sdpa(k):
    cuda = cuda_toolkit("cuda_runtime_api.h")
    if cuda is None:
        print("sdpa: no CUDA toolkit, not compiled")
        return
    folder = k.folder / "examples/sdpa"
    sh("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
       "-DSDPA_PYTORCH=\"\"", *sh("pkg-config", "--cflags", "kgate", cwd=folder,
                                 env=k.env).split(),
       "-isystem", SOURCES / "tests/adapter/torch", "-isystem", cuda / "include", "sdpa.cpp",
       cwd=folder)
    torch = subprocess.run([sys.executable, "-c", "import torch; print(torch.version.cuda)"],
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if torch.returncode != 0 or torch.stdout.strip() in ("", "None"):
        print("sdpa: no PyTorch with CUDA, checked against declarations only")
        return
    k.make("sdpa", "CUDA=%s" % cuda, "PYTHON=" + sys.executable)
    words = ["full", "--only", "fa-prefill", "--provider", "./sdpa.so"]
    if os.path.exists("/dev/nvidia0"):
        cells, _ = k.run("sdpa", *words)
        expect("PASS" in verdicts(cells, "") <= {"PASS", "SKIP"}, "PyTorch passes")
        return
    out = sh(k.kgate, "run", *words, cwd=folder, status=2)
    expect("there is no device on this machine" in out, "no GPU: " + out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        k = Installed(folder)
        for test in (test_installed, test_section, test_adapter, test_old_interfaces,
                     test_cublaslt, test_sdpa):
            test(k)
            print("ok", test.__name__)


if __name__ == "__main__":
    main()
