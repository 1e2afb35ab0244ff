"""The GPT-2 network as a small torch module, written out so that it can be read.

Attribute names follow the published GPT-2 checkpoint (wte, wpe, h.0.attn.c_attn
...), so that the state dict is already the file we want to write.  The four
matrices of a block are stored [in, out] (GPT-2 calls this "Conv1D"): the product
is x @ w + b, not x @ w.T + b.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

# Products in bfloat16 are several times faster than in float32 on processors with
# AMX or AVX512-BF16, and slower on all others; so training scripts switch it on
# (model.FAST_PRODUCTS = True) and evaluation always leaves it off.
FAST_PRODUCTS = False


class Product16(torch.autograd.Function):
    """x @ w with both factors rounded to bfloat16; sums are kept in float32."""

    @staticmethod
    def forward(ctx, x, w):
        x16, w16 = x.bfloat16(), w.bfloat16()
        ctx.save_for_backward(x16, w16)
        return (x16 @ w16).float()

    @staticmethod
    def backward(ctx, grad):
        x16, w16 = ctx.saved_tensors
        grad16 = grad.bfloat16()
        return (grad16 @ w16.t()).float(), (x16.t() @ grad16).float()


def product(x, w):
    """x [rows, in] times w [in, out]."""
    return Product16.apply(x, w) if FAST_PRODUCTS and x.requires_grad else x @ w


class Conv1D(nn.Module):
    def __init__(self, n_in, n_out, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * std)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return product(x, self.weight) + self.bias


class Attention(nn.Module):
    def __init__(self, config, std_out):
        super().__init__()
        self.n_head = config["n_head"]
        n = config["n_embd"]
        self.c_attn = Conv1D(n, 3 * n, 0.02)  # query, key and value side by side
        self.c_proj = Conv1D(n, n, std_out)

    def forward(self, x, batch, length, mask):
        n = x.shape[1]
        size = n // self.n_head
        qkv = self.c_attn(x).view(batch, length, 3, self.n_head, size)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [batch, head, length, size]
        scores = q @ k.transpose(2, 3) * (1 / math.sqrt(size)) + mask
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.c_proj(mixed.transpose(1, 2).reshape(batch * length, n))


class MLP(nn.Module):
    def __init__(self, config, std_out):
        super().__init__()
        n = config["n_embd"]
        self.c_fc = Conv1D(n, 4 * n, 0.02)
        self.c_proj = Conv1D(4 * n, n, std_out)

    def forward(self, x):
        # gelu_new is GELU in its tanh form
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        n, eps = config["n_embd"], config["layer_norm_epsilon"]
        # 2 * n_layer branches are added up in the residual stream: start each one
        # smaller, so that their sum does not grow with depth
        std_out = 0.02 / math.sqrt(2 * config["n_layer"])
        self.ln_1 = nn.LayerNorm(n, eps=eps)
        self.attn = Attention(config, std_out)
        self.ln_2 = nn.LayerNorm(n, eps=eps)
        self.mlp = MLP(config, std_out)

    def forward(self, x, batch, length, mask, dropout):
        x = x + dropout(self.attn(self.ln_1(x), batch, length, mask))
        return x + dropout(self.mlp(self.ln_2(x)))


class GPT2(nn.Module):
    def __init__(self, config, dropout=0.0):
        super().__init__()
        n = config["n_embd"]
        self.wte = nn.Embedding(config["vocab_size"], n)
        self.wpe = nn.Embedding(config["n_positions"], n)
        self.h = nn.ModuleList(Block(config) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(n, eps=config["layer_norm_epsilon"])
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def forward(self, tokens, positions=None):
        """Logits [batch, length, vocabulary] for tokens [batch, length].

        positions [length] says which row of wpe each token gets; None means 0, 1,
        2 ...  Giving other positions is how evaluate.py plays the two faults: the
        order in which tokens may see each other (the mask) stays the same.
        """
        batch, length = tokens.shape
        if positions is None:
            positions = torch.arange(length)
        x = (self.wte(tokens) + self.wpe(positions)).view(batch * length, -1)
        x = self.drop(x)
        mask = torch.full((length, length), -1e9).triu(1)
        for block in self.h:
            x = block(x, batch, length, mask, self.drop)
        # the output matrix is the token embedding again (tied)
        return product(self.ln_f(x), self.wte.weight.t()).view(batch, length, -1)
