#!/usr/bin/env python3
"""capture_moe_x.py MODEL -o FILE: the inputs of a DeepSeek-V4's MoE blocks, as safetensors.

Runs one forward pass of MODEL (a directory that transformers loads) over a prompt, and writes
what comes into the MoE blocks: tensors moe_x.layers.N, [rows, hidden], one row a token. The
section dsv4-native gates the experts on these rows.

transformers does not build the MTP layers. Where the model has none, --mtp-stand-in writes the
last block's rows as moe_x.mtp.K too, and the file's metadata says so.

  capture_moe_x.py ~/models/DeepSeek-V4-Flash -o dsv4-flash-captures.safetensors \\
      --prompt-file prompt.txt --mtp-stand-in
  capture_moe_x.py --self-test

Needs PyTorch, transformers with DeepSeek-V4, and safetensors. Nothing is downloaded.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

BLOCK = re.compile(r"(?:^|\.)(layers|mtp)\.(\d+)\.(?:mlp|ffn)$")
DEFAULT_PROMPT = (
    "The kernel of a language model is a long row of matrix products, and each of them can "
    "go wrong in its own way: a scale that belongs to the next block, a column that nobody "
    "wrote, a sum in another order.")


class Refused(Exception):
    """One line about input that cannot be used."""


def moe_blocks(model):
    """(kind, index): the MoE block, for every block that has experts."""
    found = {}
    for name, module in model.named_modules():
        match = BLOCK.search(name)
        if match and hasattr(module, "experts") and hasattr(module, "gate"):
            found[match.group(1), int(match.group(2))] = module
    return found


def default_layers(n_layers):
    """The layers that dsv4-native samples: 0, 2, 20, the middle one and the last."""
    return sorted({min(n, n_layers - 1) for n in (0, 2, 20, (n_layers + 1) // 2, n_layers - 1)})


def capture(model, input_ids, wanted):
    """{(kind, index): [tokens, hidden] float32 on the CPU} from one forward pass."""
    import torch

    blocks, rows, handles = moe_blocks(model), {}, []
    missing = [key for key in wanted if key not in blocks]
    if missing:
        raise Refused("no MoE block %s in the model; it has %s" % (
            ", ".join("%s.%d" % key for key in missing),
            ", ".join("%s.%d" % key for key in sorted(blocks)) or "none"))

    def keep(key):
        def hook(module, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            if key in rows:
                raise Refused("block %s.%d ran twice in one pass" % key)
            rows[key] = x.detach().reshape(-1, x.shape[-1]).to("cpu", torch.float32)
        return hook

    try:
        for key in wanted:
            handles.append(
                blocks[key].register_forward_pre_hook(keep(key), with_kwargs=True))
        with torch.no_grad():
            model(input_ids=input_ids, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    silent = [key for key in wanted if key not in rows]
    if silent:
        raise Refused("block %s.%d did not run" % silent[0])
    return rows


def write(path, rows, n_rows, dtype, metadata):
    """Writes the first n_rows rows of each block; returns the names."""
    import torch
    from safetensors.torch import save_file

    tensors = {}
    for (kind, index), x in rows.items():
        if not torch.isfinite(x).all():
            raise Refused("the input of block %s.%d is not finite" % (kind, index))
        tensors["moe_x.%s.%d" % (kind, index)] = x[:n_rows].to(dtype).contiguous().clone()
    temporary = str(path) + ".part"
    save_file(tensors, temporary, metadata=metadata)
    os.replace(temporary, path)
    return sorted(tensors)


def load(directory, device):
    import torch
    from transformers import AutoModelForCausalLM

    if not (pathlib.Path(directory) / "config.json").is_file():
        raise Refused("%s is not a model directory: it has no config.json" % directory)
    placement = {"device_map": "auto"} if device == "auto" else {}
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, local_files_only=True, **placement)
    if device != "auto":
        model.to(device)
    return model.eval()


def tokens_of(args, vocabulary):
    import torch

    if args.tokens:
        ids = [int(t) for t in re.split(r"[\s,]+", args.tokens.strip())]
    else:
        from transformers import AutoTokenizer

        text = args.prompt
        if args.prompt_file:
            text = pathlib.Path(args.prompt_file).read_text()
        ids = AutoTokenizer.from_pretrained(args.model, local_files_only=True)(text).input_ids
    if not ids or min(ids) < 0 or max(ids) >= vocabulary:
        raise Refused("the prompt has no tokens, or one outside 0 .. %d" % (vocabulary - 1))
    return torch.tensor([ids])


def run(args):
    import torch
    import transformers

    model = load(args.model, args.device)
    config = model.config
    layers = default_layers(config.num_hidden_layers)
    if args.layers:
        layers = sorted({int(n) for n in args.layers.split(",")})
    n_mtp = getattr(config, "num_nextn_predict_layers", 0) or 0
    built = sorted(key for key in moe_blocks(model) if key[0] == "mtp")
    wanted = [("layers", n) for n in layers] + built
    last = ("layers", config.num_hidden_layers - 1)
    if args.mtp_stand_in and last not in wanted:
        wanted.append(last)
    input_ids = tokens_of(args, config.vocab_size).to(model.get_input_embeddings().weight.device)
    rows = capture(model, input_ids, wanted)
    metadata = {
        "source": "transformers %s, torch %s" % (transformers.__version__, torch.__version__),
        "model": pathlib.Path(args.model).resolve().name,
        "tokens": " ".join(str(t) for t in input_ids[0].tolist()),
    }
    if args.mtp_stand_in and not built:
        for k in range(n_mtp):
            rows["mtp", k] = rows[last]
        metadata["mtp"] = "stand-in: the rows of layers.%d" % last[1]
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    for name in write(args.output, rows, args.rows, dtype, metadata):
        print(name)
    if n_mtp and not built and not args.mtp_stand_in:
        print("no MTP layer in the model: its cells will SKIP (--mtp-stand-in)", file=sys.stderr)


# ---- self-test ----

def tiny_model():
    import torch
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

    torch.manual_seed(1)
    config = DeepseekV4Config(
        vocab_size=96, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=3,
        num_attention_heads=4, head_dim=32, q_lora_rank=16, n_routed_experts=8,
        num_experts_per_tok=2, o_groups=2, o_lora_rank=16, index_n_heads=2,
        index_head_dim=16, index_topk=4, sliding_window=16, hc_mult=2,
        max_position_embeddings=256, num_nextn_predict_layers=1,
        partial_rotary_factor=0.5, pad_token_id=0)
    return DeepseekV4ForCausalLM(config).eval().to(torch.float32)


def check(condition, what):
    if not condition:
        raise SystemExit("self-test: FAILED: " + what)


def self_test():
    """A random model of three layers, through everything but loading."""
    import torch
    from safetensors import safe_open

    model = tiny_model()
    blocks = moe_blocks(model)
    check(sorted(blocks) == [("layers", n) for n in range(3)], "blocks: %s" % sorted(blocks))
    input_ids = torch.arange(24).reshape(1, 24) * 7 % 96

    # Witnesses that know nothing of the hooks under test: the norm in front of each block, and
    # the block's own output.
    normed, outputs, handles = {}, {}, []
    for name, module in model.named_modules():
        match = re.search(r"layers\.(\d+)\.post_attention_layernorm$", name)
        if match:
            handles.append(module.register_forward_hook(
                lambda m, a, out, n=int(match.group(1)): normed.__setitem__(n, out.clone())))
    for (_, n), block in blocks.items():
        handles.append(block.register_forward_hook(
            lambda m, a, out, n=n: outputs.__setitem__(n, out.clone())))
    rows = capture(model, input_ids, sorted(blocks))
    for handle in handles:
        handle.remove()
    check(len(normed) == 3 and len(outputs) == 3, "the witnesses did not all run")
    for (_, n), block in blocks.items():
        x = rows["layers", n]
        check(x.shape == (24, 64) and x.dtype == torch.float32, "shape of layer %d" % n)
        check(torch.equal(x, normed[n].reshape(24, 64)), "rows of layer %d" % n)
        with torch.no_grad():
            again = block(x.reshape(1, 24, 64), input_ids=input_ids)
        check(torch.equal(again, outputs[n]), "layer %d gives another output from its rows" % n)
        check(x.std() > 0 and not torch.equal(x, rows["layers", (n + 1) % 3]),
              "layer %d has the rows of another" % n)
        check(not block._forward_pre_hooks, "a hook was left on layer %d" % n)

    with tempfile.TemporaryDirectory() as folder:
        for dtype in torch.float32, torch.bfloat16:
            path = pathlib.Path(folder) / "x.safetensors"
            names = write(path, rows, 16, dtype, {"source": "self-test"})
            check(names == ["moe_x.layers.%d" % n for n in range(3)], "names: %s" % names)
            check(os.listdir(folder) == ["x.safetensors"], "a partial file was left")
            with safe_open(path, "pt") as f:
                check(sorted(f.keys()) == names and f.metadata() == {"source": "self-test"},
                      "what the file lists")
                for n in range(3):
                    got = f.get_tensor("moe_x.layers.%d" % n)
                    want = rows["layers", n][:16].to(dtype)
                    check(got.dtype == dtype and torch.equal(got, want), "read back %d" % n)
    try:
        capture(model, input_ids, [("layers", 9)])
        check(False, "a layer that is not there was accepted")
    except Refused as refused:
        check("layers.9" in str(refused), "the message: %s" % refused)
    check(default_layers(43) == [0, 2, 20, 22, 42], "the layers of 43")
    check(default_layers(3) == [0, 2], "the layers of 3")
    print("self-test: ok")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="directory of the model")
    parser.add_argument("-o", "--output", help="the file to write")
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, help="text of the prompt")
    parser.add_argument("--prompt-file", help="file with the text instead")
    parser.add_argument("--tokens", help="token ids instead of text: '0 17 4'")
    parser.add_argument("--layers", help="0,2,20,...; default: those that dsv4-native samples")
    parser.add_argument("--rows", type=int, default=32, help="tokens to keep (default 32)")
    parser.add_argument("--bf16", action="store_true", help="write BF16, not F32")
    parser.add_argument("--mtp-stand-in", action="store_true",
                        help="write the last block's rows for MTP layers that are not built")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda:N")
    parser.add_argument("--self-test", action="store_true",
                        help="check this tool on a tiny random model")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not args.model or not args.output or args.rows < 1:
        parser.error("MODEL, -o FILE and at least one row are needed")
    return run(args)


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit("capture_moe_x: %s" % refused)
    except ImportError as error:
        sys.exit("capture_moe_x: %s; it needs torch, transformers and safetensors" % error)
