"""Make the embedded model: corpus -> tokenizer -> training -> GGUF.

Everything that `tiny.gguf` is comes from this file and two Debian packages of documentation.
Run the five steps in order on a Debian machine (README.md beside this file gives times and results):

    pip install -e ".[train]"
    python build.py corpus    --work WORK      # download, extract, clean: corpus.txt, held-out.txt
    python build.py tokenizer --work WORK      # byte-level BPE, 4096 entries
    python build.py train     --work WORK      # resumes from its last checkpoint
    python build.py export    --work WORK      # tiny.gguf and loss.csv beside this file
    python build.py check     --work WORK      # what llama.cpp makes of it: expected.json

Nothing here is imported by the library.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import re
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {
    "python3.11-doc": "usr/share/doc/python3.11/html",
    "postgresql-doc-15": "usr/share/doc/postgresql-doc-15/html",
}
SKIPPED_PAGES = re.compile(r"genindex|changelog|copyright|license|contents\.html|_static|_sources")
HELD_OUT_EVERY = 60
HELD_OUT_BYTES = 120_000
PROMPT = "The following function returns"
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"


@dataclass(frozen=True)
class Shape:
    """Dimensions of the model; every row width is a multiple of 256, so every k-quant applies."""

    n_vocab: int = 4096
    n_embd: int = 256
    n_layer: int = 6
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx_train: int = 1024
    rope_freq_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


@dataclass(frozen=True)
class Recipe:
    """How it is trained."""

    tokens: int = 16_000_000
    sequence: int = 1024
    batch: int = 4
    lr: float = 3e-3
    lr_final: float = 1e-4
    warmup_steps: int = 100
    weight_decay: float = 0.1
    checkpoint_every: int = 100
    seed: int = 20261120

    @property
    def tokens_per_step(self) -> int:
        return self.sequence * self.batch

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / self.tokens_per_step)

    def lr_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to `lr_final`."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.lr_final + (self.lr - self.lr_final) * 0.5 * (1 + math.cos(math.pi * done))


# --- corpus -------------------------------------------------------------------------------


def page_text(html: str) -> str:
    """Headings and paragraphs of one documentation page, one per line, without code blocks."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    body = soup.select_one("div.body") or soup.body or soup
    for mark in body.select("a.headerlink, pre, table.footnote"):
        mark.decompose()
    blocks = (element.get_text() for element in body.find_all(["h1", "h2", "h3", "p"]))
    lines = (re.sub(r"\s+", " ", block).strip() for block in blocks)
    return "\n".join(line for line in lines if len(line) > 2)


def build_corpus(work: Path) -> None:
    """Download and unpack the packages, clean every page, set every 60th page aside."""
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=work, check=True)
    kept: list[str] = []
    held_out: list[str] = []
    for package, folder in PACKAGES.items():
        archive = max(work.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, work / package], check=True)
        pages = sorted((work / package / folder).rglob("*.html"))
        pages = [p for p in pages if not SKIPPED_PAGES.search(str(p.relative_to(work / package / folder)))]
        for index, path in enumerate(pages):
            text = page_text(path.read_text(encoding="utf-8", errors="replace"))
            if len(text) > 400:
                (held_out if index % HELD_OUT_EVERY == 30 else kept).append(text)
    random.Random(Recipe.seed).shuffle(kept)
    (work / "corpus.txt").write_text("\n\n\n".join(kept), encoding="utf-8")
    held = "\n\n\n".join(text[:12_000].rsplit("\n", 1)[0] for text in held_out)
    (HERE / "held-out.txt").write_bytes(held.encode()[:HELD_OUT_BYTES].rsplit(b"\n", 1)[0] + b"\n")


def corpus_pages(work: Path) -> list[str]:
    return (work / "corpus.txt").read_text(encoding="utf-8").split("\n\n\n")


# --- tokenizer ----------------------------------------------------------------------------


def build_tokenizer(work: Path, shape: Shape) -> None:
    """Train a byte-level BPE with GPT-2's pre-tokenizer, the one llama.cpp calls `gpt-2`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.n_vocab,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus_pages(work), trainer)
    tokenizer.save(str(work / "tokenizer.json"))


def load_tokenizer(work: Path):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(work / "tokenizer.json"))


# --- model and training ---------------------------------------------------------------------


def make_network(shape: Shape):
    """A Llama network under GGUF's tensor names, with tied embeddings and paired rotary rows."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    frequency = shape.rope_freq_base ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    angle = torch.arange(shape.n_ctx_train)[:, None] * frequency[None, :]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            kv = shape.n_head_kv * shape.head_dim
            self.attn_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
            self.attn_q = nn.Linear(shape.n_embd, shape.n_embd, bias=False)
            self.attn_k = nn.Linear(shape.n_embd, kv, bias=False)
            self.attn_v = nn.Linear(shape.n_embd, kv, bias=False)
            self.attn_output = nn.Linear(shape.n_embd, shape.n_embd, bias=False)
            self.ffn_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
            self.ffn_gate = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
            self.ffn_up = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
            self.ffn_down = nn.Linear(shape.n_ff, shape.n_embd, bias=False)

        def forward(self, x, cos, sin):
            x = x + self.attention(self.attn_norm(x), cos, sin)
            h = self.ffn_norm(x)
            return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

        def attention(self, h, cos, sin):
            batch, length, _ = h.shape
            heads = (batch, length, -1, shape.head_dim)
            q = rotate(self.attn_q(h).view(heads), cos, sin).transpose(1, 2)
            k = rotate(self.attn_k(h).view(heads), cos, sin).transpose(1, 2)
            v = self.attn_v(h).view(heads).transpose(1, 2)
            group = shape.n_head // shape.n_head_kv
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.attn_output(out.transpose(1, 2).reshape(batch, length, -1))

    def rotate(x, cos, sin):
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
            self.blk = nn.ModuleList(Block() for _ in range(shape.n_layer))
            self.output_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
            self.register_buffer("cos", angle.cos()[:, None, :], persistent=False)
            self.register_buffer("sin", angle.sin()[:, None, :], persistent=False)
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    into_stream = name.endswith(("attn_output.weight", "ffn_down.weight"))
                    std = 0.02 / math.sqrt(2 * shape.n_layer) if into_stream else 0.02
                    nn.init.normal_(weight, std=std)

        def forward(self, tokens):
            cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
            x = self.token_embd(tokens)
            for block in self.blk:
                x = block(x, cos, sin)
            return self.output_norm(x) @ self.token_embd.weight.T

    return Network()


def encode_corpus(work: Path):
    """Token ids of the whole corpus, each page opened by BOS and closed by EOS; cached as .npy."""
    import numpy as np

    path = work / "tokens.npy"
    if not path.exists():
        tokenizer = load_tokenizer(work)
        bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
        ids = (i for page in tokenizer.encode_batch(corpus_pages(work)) for i in (bos, *page.ids, eos))
        np.save(path, np.fromiter(ids, dtype=np.uint16))
    return np.load(path)


def batch_at(step: int, ids, recipe: Recipe):
    """The step's sequences; a pure function of the step, so a resumed run sees the same order."""
    import numpy as np
    import torch

    starts = np.random.default_rng((recipe.seed, step)).integers(0, len(ids) - recipe.sequence - 1, recipe.batch)
    rows = np.stack([ids[s : s + recipe.sequence + 1] for s in starts]).astype(np.int64)
    rows = torch.from_numpy(rows)
    return rows[:, :-1], rows[:, 1:]


def loss_of(network, tokens, targets):
    import torch
    from torch.nn import functional as F

    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(tokens)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def make_optimizer(network, recipe: Recipe):
    import torch

    matrices = [p for p in network.parameters() if p.dim() == 2]
    gains = [p for p in network.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.95), fused=True)


def train(work: Path, shape: Shape, recipe: Recipe) -> None:
    """Train to `recipe.tokens`, resuming from the last checkpoint; the loss goes to loss.csv."""
    import torch

    torch.manual_seed(recipe.seed)
    ids = encode_corpus(work)
    network = make_network(shape)
    optimizer = make_optimizer(network, recipe)
    checkpoint = work / "checkpoint.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    forward = torch.compile(network)
    for step in range(first, recipe.steps):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr_at(step)
        loss = loss_of(forward, *batch_at(step, ids, recipe))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rate = recipe.tokens_per_step / (time.perf_counter() - began)
        log_step(work, (step + 1) * recipe.tokens_per_step, loss.item(), rate)
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == recipe.steps:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)


def log_step(work: Path, tokens: int, loss: float, rate: float) -> None:
    path = work / "loss.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(["tokens_seen", "loss_nats", "tokens_per_second"])
        writer.writerow([tokens, f"{loss:.4f}", f"{rate:.0f}"])


# --- export -------------------------------------------------------------------------------


def export(work: Path, shape: Shape, recipe: Recipe) -> None:
    """Write the checkpoint as an F16 GGUF, with its vocabulary and where it comes from."""
    import gguf
    import torch

    saved = torch.load(work / "checkpoint.pt")
    writer = gguf.GGUFWriter(HERE / "tiny.gguf", "llama")
    write_metadata(writer, shape, tokens_seen=saved["step"] * recipe.tokens_per_step)
    write_vocabulary(writer, work)
    for name, weight in saved["network"].items():
        dtype = torch.float16 if weight.dim() == 2 else torch.float32
        writer.add_tensor(name, weight.to(dtype).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_loss_curve(work)


def write_metadata(writer, shape: Shape, tokens_seen: int) -> None:
    import gguf

    writer.add_name("inferlab tiny")
    writer.add_description(f"Trained by the handbook on {tokens_seen:,} tokens of technical documentation.")
    writer.add_license("PSF-2.0 AND PostgreSQL")
    writer.add_context_length(shape.n_ctx_train)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_freq_base)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_uint64("inferlab.tokens_seen", tokens_seen)


def write_vocabulary(writer, work: Path) -> None:
    import gguf

    described = json.loads((work / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in described["model"]["merges"]]
    kinds = [gguf.TokenType.CONTROL if t in (BOS, EOS) else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocabulary[BOS])
    writer.add_eos_token_id(vocabulary[EOS])
    writer.add_add_bos_token(True)


def check(work: Path) -> None:
    """Write down what the exported model does in llama.cpp: bits per byte, a greedy continuation, its words."""
    import inferlab as lab
    from inferlab.measurement.fidelity import bits_per_byte

    held_out = (HERE / "held-out.txt").read_text(encoding="utf-8")
    run = lab.measure(HERE / "tiny.gguf", prompt=PROMPT, n_gen=200, repeats=1, progress=False)
    words = set(re.findall(r"[a-z]+", (work / "corpus.txt").read_text(encoding="utf-8").lower()))
    sample = re.findall(r"[a-z]+", (run.text or "").lower())
    expected = {
        "tokens_seen": lab.read_gguf(HERE / "tiny.gguf").metadata["inferlab.tokens_seen"],
        "held_out_bits_per_byte": round(bits_per_byte(held_out, HERE / "tiny.gguf"), 4),
        "held_out_perplexity_per_token": round(lab.perplexity(held_out, HERE / "tiny.gguf").value, 2),
        "prompt": PROMPT,
        "continuation": run.text,
        "share_of_words_in_corpus": round(sum(word in words for word in sample) / len(sample), 4),
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_loss_curve(work: Path) -> None:
    """Every tenth step of the loss curve, small enough to keep beside the model."""
    rows = (work / "loss.csv").read_text().splitlines()
    (HERE / "loss.csv").write_text("\n".join([rows[0], *rows[10::10]]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["corpus", "tokenizer", "train", "export", "check"])
    parser.add_argument("--work", type=Path, required=True, help="folder for downloads and checkpoints")
    parser.add_argument("--tokens", type=int, default=Recipe.tokens, help="tokens to train on")
    arguments = parser.parse_args()
    shape, recipe = Shape(), Recipe(tokens=arguments.tokens)
    print(json.dumps({**asdict(shape), **asdict(recipe)}))
    if arguments.step == "corpus":
        build_corpus(arguments.work)
    elif arguments.step == "tokenizer":
        build_tokenizer(arguments.work, shape)
    elif arguments.step == "train":
        train(arguments.work, shape, recipe)
    elif arguments.step == "export":
        export(arguments.work, shape, recipe)
    else:
        check(arguments.work)


if __name__ == "__main__":
    main()
